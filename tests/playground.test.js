// The playground's arithmetic against PyTorch's: tests/test_playground.py exports the runs and starts this.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { test } = require("node:test");
const vm = require("node:vm");

const [SCRIPTS, REFERENCE] = [process.env.PLAYGROUND_RUNS, process.env.PLAYGROUND_REFERENCE];
const PAGE = path.join(__dirname, "..", "book", "playground");
const PARTS = ["maths", "model", "state"];
const NEAR = 1e-3; // relative to the largest value of an activation, as are ties of two logits

/** The page's scripts, run as a browser runs them. */
function load() {
  const context = vm.createContext({ atob, URLSearchParams, console });
  for (const part of PARTS) vm.runInContext(fs.readFileSync(path.join(PAGE, `${part}.js`), "utf8"), context, { filename: `${part}.js` });
  return vm.runInContext(`({ ${PARTS.map((part) => `${part}: Carry${part[0].toUpperCase()}${part.slice(1)}`)} })`, context);
}

const { model, state } = load();

function unpacked(name) {
  let run;
  vm.runInNewContext(fs.readFileSync(path.join(SCRIPTS, `${name}.js`), "utf8"), { CarryRuns: { receive: (packed) => (run = model.unpack(packed)) } });
  return run;
}

const flat = (x) => (Array.isArray(x) ? x.flatMap(flat) : [x]);

/** How far apart two logit tables of an answer are, and whether their digits agree or are tied. */
function compare(found, expected) {
  const largest = Math.max(...flat(expected).map(Math.abs));
  const same = expected.map((row, i) => {
    const [first, second] = [...row].sort((x, y) => y - x);
    return { agrees: argmax(row) === argmax(found[i]), tied: first - second < NEAR * largest };
  });
  const off = Math.max(...flat(expected).map((x, i) => Math.abs(x - flat(found)[i]))) / largest;
  return { off, wrong: same.filter(({ agrees, tied }) => !agrees && !tied).length, ties: same.filter(({ agrees }) => !agrees).length };
}

const argmax = (row) => row.indexOf(Math.max(...row));

const logits = (run, tokens, hook) => {
  const { data } = model.forward(run, tokens, hook).logits;
  return run.config.answer.map((position) => [...data.subarray(position * 12, position * 12 + 12)]);
};

for (const file of SCRIPTS ? fs.readdirSync(REFERENCE).sort() : []) {
  const name = path.basename(file, ".json");
  const [run, expected] = [unpacked(name), JSON.parse(fs.readFileSync(path.join(REFERENCE, file), "utf8"))];
  const tokens = expected.sums.map(([a, b]) => model.encode(run.config, a, b));

  test(`${name}: every hook point is PyTorch's`, () => {
    for (let i = 0; i < 3; i++) {
      const cache = model.forward(run, tokens[i]);
      assert.deepStrictEqual(Object.keys(cache).sort(), Object.keys(expected.activations).sort());
      for (const [point, values] of Object.entries(expected.activations)) {
        const [theirs, ours] = [flat(values[i]).map((x) => (x < -1e29 ? -Infinity : x)), [...cache[point].data]];
        const largest = Math.max(...theirs.filter(Number.isFinite).map(Math.abs));
        const off = Math.max(...theirs.map((x, j) => (x === ours[j] ? 0 : Math.abs(x - ours[j]))));
        assert.ok(ours.length === theirs.length && off <= NEAR * largest, `${point} is off by ${off / largest}`);
      }
    }
  });

  for (const kind of ["intact", "changed"]) {
    test(`${name}: ${tokens.length} answers, ${kind}`, (t) => {
      let [ties, off] = [0, 0];
      tokens.forEach((these, i) => {
        const hook = kind === "changed" ? model.intervene(run, expected.interventions[i]) : undefined;
        const found = compare(logits(run, these, hook), expected[`${kind}_logits`][i]);
        assert.strictEqual(found.wrong, 0, `sum ${expected.sums[i]}, ${JSON.stringify(expected.interventions[i])}`);
        ties += found.ties;
        off = Math.max(off, found.off);
      });
      assert.ok(off < 5 * NEAR, `logits are off by ${off}`);
      t.diagnostic(`${ties} digits differ by a tie; logits differ by ${off.toExponential(1)} of the largest at most`);
    });
  }
}
