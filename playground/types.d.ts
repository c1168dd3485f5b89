// What the scripts hand to each other.

interface Tensor {
  data: Float32Array;
  shape: number[];
}

interface Config {
  layers: number;
  width: number;
  causal: boolean;
  d_model: number;
  heads: number;
  d_ff: number;
  /** Positions at which the answer's digits are read. */
  answer: number[];
}

interface Probe {
  label: "ones" | "tens" | "carry_in" | "digit";
  column: number;
  name: string;
  position: number;
  accuracy: number;
  bias: number[];
}

interface Plane {
  name: string;
  position: number;
  column: number;
  label: "tens" | "carry_in";
  centre: number[];
  /** Those that are drawn, on the first plane only. */
  sums: Sum[] | null;
}

/** A coordinate of the stream: whether a carry comes into a column, or whether its next column is a nine. */
interface Line {
  /** Its name in the address: hundreds, or hundreds-nine. */
  id: string;
  column: number;
  name: string;
  position: number;
  /** Mean coordinates without a carry and with one; or of a next column less than nine, and of a nine. */
  zero: number;
  one: number;
  /** Of swaps of the carry alone, or of carry and nine: the share that makes the other digit where that is lowest. */
  share: number;
}

interface FittedLine extends Line {
  direction: Float32Array;
}

/** Coordinates that are held, by the id of their line. */
type Coordinates = Record<string, number>;

/** Coordinates from one on, in which the model answers the same digit. */
interface Stretch {
  from: number;
  digit: number;
}

/** What Python packed: bytes, deflated, as characters of 15 bits from U+3000 on; the header is JSON. */
interface Packed {
  text: string;
  deflated: number;
  header: number;
}

type Weights = Record<string, Tensor>;

interface Run {
  id: string;
  config: Config;
  /** Of the last layer, as `measure.decision_head` chooses it. */
  decision_head: number;
  weights: Weights;
  probes: Probe[];
  planes: Plane[];
  lines: Line[];
}

type Sum = [number, number];
type Activations = Record<string, Tensor>;
type Hook = (name: string, x: Tensor) => Tensor;
type DigitAt = (run: Run, line: FittedLine, pass: Pass, held: Coordinates) => (value: number) => number;

type Affine = (x: Tensor, weight: Tensor, bias: Tensor) => Tensor;
type Layer = (weights: Weights, name: string, x: Tensor) => Tensor;

interface Intervention {
  kind: "Ablation" | "MeanAblation" | "Patch";
  heads?: number[][];
  mlps?: number[];
  neurons?: number[][];
  skips?: number[];
  patterns?: number[][];
  resid?: number[];
  names?: string[];
  positions?: number[];
  source?: Sum;
}

/** Activations by name, each with the heads or neurons that are meant (null: all of it). */
type Targets = Map<string, number[] | null>;
type Replace = (name: string, x: Tensor, other: Tensor, indices: number[] | null, positions?: number[]) => Tensor;

/** Kinds of parts that have switches. */
type Field = "heads" | "mlps" | "skips" | "names" | "neurons";

interface Switch {
  label: string;
  field: Field;
  value: any;
}

/** Draws a pass into an element. */
type View = (root: HTMLElement, pass: Pass) => void;

/** What decides which parts of two runs are the same. */
type Shape = Pick<Run, "config" | "decision_head">;
type Counterpart = (parts: Intervention[], from: Shape, to: Shape) => Intervention[];

type Toggle = (parts: Intervention[], field: Field, value: any, how: any) => Intervention[];

/** All that the views draw: a sum as the intact model has it, and under the interventions. */
interface Pass {
  run: Run;
  sum: Sum;
  tokens: number[];
  intact: Activations;
  /** Under the interventions, with no carry held. */
  unheld: Activations;
  cache: Activations;
  /** Of the interventions. */
  hook: Hook;
}

/** A run on the page: what it does and what draws it. The second one's elements have `-2` at the end of their ids. */
interface Side {
  suffix: "" | "-2";
  state: State;
  pass: Pass;
  built: any;
}

/** What an address can hold; a page has some of it. */
interface State {
  run: string;
  sum: Sum;
  /** A second run beside it, if not empty. */
  beside: string;
  do: Intervention[];
  /** Carries that are held; all others are as the model computes them. */
  line: Coordinates;
  frame: number;
  epoch: number;
}

/** What an address can ask of a page. */
interface Bounds {
  runs: string[];
  config: Config;
  lines: Line[];
  epochs: number;
}

type Properties = { [key in keyof State]: [(text: string, bounds: Bounds) => State[key], (x: any) => string] };
type Parse = (
  hash: string,
  initial: Partial<State>,
  bounds: Partial<Bounds>,
) => { state: State; problems: Problem[] };

/** An attention of one token to another. */
interface Look {
  head: number;
  query: number;
  key: number;
  p: number;
}

/** A frame of the stepper: arcs over the tokens, notes under them, those of the notes that are wrong. */
interface Frame {
  title: string;
  text: string;
  arcs?: Look[];
  notes?: Record<number, string>;
  wrong?: number[];
}

/** A line for the reader, beside a field. */
interface Problem {
  field: string;
  text: string;
}

/** A run in runs.js. */
interface Listed {
  id: string;
  file: string;
  label: string;
  training: string;
}

/** How often a digit comes out in each way. */
type Outcome = Record<"correct" | "one too small" | "one too large" | "wrong", number>;
