// Puts the page together: what a reader does changes the state, the state is written into the address, views are drawn.
const CarryRuns = (() => {
  const { $, make, attentionMap, cellAt, token } = CarryViews;
  const { switching, chips, inAWord, toggled, neurons, topNeurons } = CarryControls;
  const folder = /** @type {HTMLScriptElement} */ (document.currentScript).src.replace(/[^/]*$/, "runs/");
  const INITIAL = /** @type {any} */ ({ run: "n2_s0.3_w0.2/0", sum: [352, 271], beside: "", do: [], line: {}, frame: 1 });
  // What is drawn of a second run, too, beside the first's.
  const PAIRED = ["spoken", "net", "answer", "line", "maps", "counts", "probes", "planes", "stepper"];
  const NUMBERS = { a: "sum", b: "sum", a2: "source", b2: "source" }; // fields, and what each is part of
  const received = /** @type {Map<string, Packed>} */ (new Map());
  const loaded = /** @type {Map<string, Promise<Run>>} */ (new Map());
  const times = /** @type {number[]} */ ([]); // of passes, in ms
  let known = /** @type {Listed[]} */ ([]);
  let state = /** @type {State} */ (INITIAL);
  let wanted = state; // with what still waits for a run to load
  let pass = /** @type {any} */ (null); // a Pass
  let built = /** @type {any} */ (null); // elements that depend on the run's shape
  let beside = /** @type {Side | null} */ (null); // the second run
  let counted = /** @type {Outcome[][][] | null} */ (null); // of each run
  let first = ""; // when the first answer was there
  let watched = 7; // the position whose neurons are shown
  let turn = 0; // of a change: what belongs to an earlier one is dropped
  let another = false; // whether the next part begins an intervention of its own

  /** @summary Put lines beside the fields that they are about, the others away. @param {Problem[]} problems */
  function say(problems) {
    for (const about of ["run", "beside", "sum", "source"]) {
      const own = ["run", "beside", "source"];
      const here = problems.filter(({ field }) => about === (own.includes(field) ? field : "sum"));
      $(`line-${about}`).textContent = here.map(({ text }) => text).join(" ");
    }
    for (const [id, about] of Object.entries(NUMBERS)) {
      $(id).setAttribute("aria-invalid", String(problems.some(({ field }) => field === about)));
    }
  }

  /** @type {(field: string, act: () => void | Promise<void>) => Promise<void>} what fails is said beside the field */
  async function careful(field, act) {
    try {
      await act();
    } catch (error) {
      say([{ field, text: /** @type {Error} */ (error).message }]);
      if (field === "sum") outdated();
    }
  }

  /** What is typed is no sum: the answer is still of the sum before, and is greyed. */
  function outdated() {
    if (!pass) return;
    $("page").classList.add("pg-stale");
    $("spoken").textContent = `No answer yet: what is grey is still about ${state.sum.join(" + ")}.`;
    $("spoken-2").textContent = "";
  }

  /** @summary A run, whose script is loaded once. @param {string} id @returns {Promise<Run>} */
  function load(id) {
    const src = folder + known.find((listed) => listed.id === id)?.file;
    const text = `The weights of run ${id} cannot be loaded: build the book again with make book.`;
    const run = loaded.get(id) || new Promise((resolve, reject) => {
      const onload = () => resolve(CarryMaths.unpack(/** @type {Packed} */ (received.get(id))));
      const onerror = () => (loaded.delete(id), reject(new Error(text)));
      document.head.append(make("script", { src, charset: "utf-16", onload, onerror }));
    }); // prettier-ignore
    loaded.set(id, run);
    return run;
  }

  /** @type {(next: Partial<State>, problems?: Problem[]) => Promise<void>} load what it needs, compute, draw */
  async function change(next, problems = []) {
    const mine = ++turn;
    const asked = (wanted = { ...wanted, ...next });
    if (asked.beside === asked.run) asked.beside = "";
    try {
      const [run, other] = await Promise.all([load(asked.run), asked.beside ? load(asked.beside) : null]);
      if (mine !== turn) return;
      if (asked.run !== state.run) {
        const { do: parts, line } = asked;
        const fitting = CarryState.parse(CarryState.format({ do: parts, line }), { do: [], line: {} }, run);
        Object.assign(asked, fitting.state);
        problems.push(...fitting.problems);
      }
      if (key(asked) !== key(state)) counted = null;
      state = asked;
      if (built?.id !== run.id) build(run);
      pass = compute(run, state, pass);
      beside = other && second(other);
      draw();
      say(problems);
      history.replaceState(history.state, "", CarryState.format(state));
      if (times.length < 2) setTimeout(foot, 0, 30);
    } catch (error) {
      wanted = state;
      [$("run").value, $("beside").value] = [state.run, state.beside];
      say([{ field: "run", text: /** @type {Error} */ (error).message }]);
    }
  }

  /** @summary What random sums are counted under. @param {State} state */
  const key = ({ run, beside, do: parts, line }) => JSON.stringify([run, beside, parts, line]);

  /** @summary The run beside, in which the same parts and coordinates are changed. @param {Run} run @returns {Side} */
  function second(run) {
    const own = { ...state, run: run.id, do: CarryState.counterpart(state.do, pass.run, run) };
    const isBuilt = beside?.built.id === run.id && beside.built.first === pass.run.id;
    const shape = isBuilt ? beside?.built : { ...pictures(run, "-2"), first: pass.run.id };
    if (!isBuilt) matchSwitches(run);
    return { suffix: "-2", state: own, pass: compute(run, own, beside?.pass), built: shape };
  }

  /** @summary Make a switch of the second run that of the first's part which it matches. @param {Run} run */
  function matchSwitches(run) {
    for (const button of $("page").querySelectorAll(".pg-second [data-field]")) {
      const { field, value } = button.dataset;
      const own = /** @type {any} */ ({ kind: "Ablation", [field]: [JSON.parse(value)] });
      const [match] = /** @type {any[]} */ (CarryState.counterpart([own], run, pass.run));
      if (match) button.dataset.value = JSON.stringify(match[field][0]);
      else button.removeAttribute("data-field");
      button.setAttribute("aria-disabled", String(!match));
    }
  }

  /** @type {(run: Run, state: State, before: Pass | undefined) => Pass} */
  function compute(run, state, before) {
    const tokens = CarryModel.encode(run.config, ...state.sum);
    const isSame = before?.run === run && String(before.sum) === String(state.sum);
    const intact = isSame ? before.intact : CarryModel.forward(run, tokens);
    const hook = CarryModel.intervene(run, state.do);
    const start = performance.now();
    const unheld = CarryModel.forward(run, tokens, hook);
    times.push(performance.now() - start);
    const isHeld = Object.keys(state.line).length > 0;
    const cache = isHeld ? CarryModel.forward(run, tokens, whole(run, state)) : unheld;
    return { run, sum: state.sum, tokens, intact, unheld, cache, hook };
  }

  /** @type {(run: Run, state: State) => Hook} of all that a state changes: interventions, then carries that are held */
  function whole(run, state) {
    const [intervened, held] = [CarryModel.intervene(run, state.do), CarryModel.holdCoordinates(run, state.line)];
    return /** @type {Hook} */ ((name, x) => held(name, intervened(name, x)));
  }

  /** The foot, after some passes more so that it has a median to report. */
  function foot(more = 0) {
    for (let i = 0; i < more; i++) compute(pass.run, state, pass);
    first = first || `first answer ${(performance.now() / 1000).toFixed(2)} s after the page was opened`;
    const median = [...times].sort((x, y) => x - y)[Math.floor(times.length / 2)].toFixed(1);
    $("foot").textContent = `On this machine: ${first}; a pass takes ${median} ms (median of ${times.length}).`;
  }

  /** @summary Switch the part that a click is on, if any. @param {any} event */
  function toggle({ target }) {
    const { field, value } = target.closest("[data-field]")?.dataset || {};
    if (!field) return;
    careful("source", () => {
      const next = toggled(state.do, field, JSON.parse(value), another || !state.do.length ? how() : null);
      if (next.length >= state.do.length) another = false;
      change({ do: next });
    });
  }

  /** What the controls say is put in the place of what is switched off. */
  function how() {
    const kind = $("form").elements.kind.value;
    const source = kind === "Patch" ? CarryState.parseSum(`${$("a2").value}+${$("b2").value}`) : undefined;
    return { kind, source, positions: $("at").value ? $("at").value.split(",").map(Number) : undefined };
  }

  /** The controls of what is put in the place of a part were changed. */
  function chosen() {
    $("source").hidden = $("form").elements.kind.value !== "Patch";
    careful("source", () => {
      const changed = { ...state.do[state.do.length - 1], ...how() };
      if (another || !state.do.length) say([]);
      else change({ do: CarryState.tidy([...state.do.slice(0, -1), changed]) });
    });
  }

  /** @type {(run: Run, suffix: Side["suffix"]) => any} the pictures that depend on a run's shape, put in their places */
  function pictures(run, suffix) {
    const { id, config } = run;
    const [layers, heads] = [config.layers, config.heads].map((n) => [...Array(n).keys()]);
    const each = layers.flatMap((layer) => heads.map((head) => ({ layer, head })));
    const maps = each.map(({ layer, head }) => {
      const shown = () => (suffix ? beside?.pass : pass);
      const onpointermove = (/** @type {PointerEvent} */ event) => hover(map.svg, shown(), layer, head, event);
      const listening = { onpointermove, onpointerleave: () => ($("hover").textContent = "") };
      const map = attentionMap(`head ${layer}:${head}`, { ...switching("heads", [layer, head]), ...listening });
      return { ...map, layer, head };
    });
    const panel = CarryPanel.panel(run);
    const sliders = CarryCoordinate.sliders(run, suffix, hold);
    $(`net${suffix}`).replaceChildren(panel.element);
    $(`line${suffix}`).replaceChildren(...sliders.elements);
    $(`maps${suffix}`).replaceChildren(...maps.map(({ element }) => element));
    return { id, maps, panel, sliders };
  }

  /** @summary The elements that depend on the first run's shape. @param {Run} run */
  function build(run) {
    const { config } = run;
    const layers = [...Array(config.layers).keys()];
    const strips = layers.map((layer) => ({ ...neurons(config, layer), layer })).reverse(); // the final MLP first
    const options = positions(config).map((text, i) => make("option", { value: i }, text));
    const top = topNeurons(config);
    $("chips").replaceChildren(...chips(run));
    $("top").replaceChildren(top.element);
    const named = strips.map(({ grid, layer }, i) => {
      return make("div", {}, make("p", { class: "pg-hint" }, `${i ? "" : "Final MLP: "}MLP ${layer}`), grid);
    });
    $("neurons").replaceChildren(...named);
    $("at").replaceChildren(make("option", { value: "" }, "all positions"), ...options);
    $("watched").replaceChildren(...options.map((option) => option.cloneNode(true)));
    [watched] = config.answer;
    built = { ...pictures(run, ""), strips, top };
  }

  /** @summary A name for each position. @param {Config} config */
  function positions({ width, answer }) {
    const digits = (/** @type {string} */ name) => CarryState.PLACES.map((place) => `${place} of the ${name} number`);
    const tokens = [...digits("first"), "+", ...digits("second"), ...Array(width).fill("")];
    return tokens.map((token, i) => {
      const place = CarryState.PLACES[answer.indexOf(i)];
      const read = place ? `answer, ${place}` : "";
      return `position ${i}: ${[token, read].filter(Boolean).join("; ")}`;
    });
  }

  /** @summary Hold a column's carry at a coordinate. @param {string} id @param {number} value */
  const hold = (id, value) => change({ line: { ...state.line, [id]: value } });

  /** @type {(svg: SVGElement, pass: any, layer: number, head: number, event: PointerEvent) => void} */
  function hover(svg, pass, layer, head, event) {
    const [query, key] = cellAt(svg, event) || [];
    const p = pass.cache[`blocks.${layer}.attn.pattern`].data[head * 100 + query * 10 + key];
    const [from, to] = [query, key].map((i) => token(pass, i));
    $("hover").textContent = p >= 0 ? `Head ${layer}:${head}: ${from} gives ${to} ${p.toFixed(3)} of its attention.` : "";
  }

  /** @summary Show what an intervention has put in the place of its parts. @param {Intervention} part */
  function showHow({ kind, source, positions = [] }) {
    $("form").elements.kind.value = kind;
    $("source").hidden = kind !== "Patch";
    if (source) [$("a2").value, $("b2").value] = source;
    const at = positions.join(",");
    $("at").value = at;
    if ($("at").selectedIndex < 0) $("at").append(make("option", { value: at, selected: "" }, `positions ${at}`));
  }

  /** @summary What the page has of a run. @param {Side} side */
  function drawSide({ suffix, state, pass, built }) {
    const { tokens, cache } = pass;
    const pattern = (/** @type {any} */ { layer, head }) => CarryMaths.row(cache[`blocks.${layer}.attn.pattern`], head);
    for (const map of built.maps) map.draw(pattern(map), tokens);
    built.panel.draw(pass);
    built.sliders.draw(pass, state);
    CarryViews.showAnswer($(`answer${suffix}`), pass);
    CarryViews.showProbes($(`probes${suffix}`), pass);
    CarryViews.showPlanes($(`planes${suffix}`), pass);
    CarryStepper.show($(`stepper${suffix}`), pass, state.frame);
    if (!counted) $(`counts${suffix}`).replaceChildren(); // those of another intervention
    $(`spoken${suffix}`).textContent = CarryViews.spoken(pass);
    const { label } = /** @type {Listed} */ (known.find(({ id }) => id === state.run));
    for (const name of $("page").querySelectorAll(suffix ? ".pg-second > .pg-of" : ".pg-first > .pg-of")) {
      name.textContent = label;
      name.parentElement.setAttribute("aria-label", label);
    }
  }

  /** The runs on the page, one or two. */
  const sides = () => /** @type {Side[]} */ ([{ suffix: "", state, pass, built }, ...(beside ? [beside] : [])]);

  function draw() {
    const { label, training } = /** @type {Listed} */ (known.find(({ id }) => id === state.run));
    [$("run").value, $("beside").value] = [state.run, state.beside];
    $("page").classList.toggle("pg-two", Boolean(beside));
    for (const side of $("page").querySelectorAll(".pg-second")) side.hidden = !beside;
    if (!beside) for (const id of PAIRED) $(`${id}-2`).replaceChildren();
    ["a", "b"].forEach((field, i) => {
      if (Number($(field).value || NaN) !== state.sum[i]) $(field).value = state.sum[i];
    });
    built.top.draw(pass, watched); // before its buttons are marked
    if (state.do.length && !another) showHow(state.do[state.do.length - 1]);
    for (const button of $("page").querySelectorAll("[data-field]")) {
      const word = inAWord(state.do, button.dataset.field, JSON.parse(button.dataset.value));
      button.setAttribute("aria-pressed", String(word !== ""));
      for (const note of button.querySelectorAll(".pg-state")) note.textContent = word && ` ${word}`;
    }
    $("watched").value = watched;
    for (const strip of built.strips) strip.draw(pass, watched);
    CarryViews.showDigits($("digits"), pass);
    sides().forEach(drawSide);
    $("page").classList.remove("pg-stale");
    $("spoken").textContent += invitation();
    $("call").textContent = under(state) + (another ? " | …" : "");
    $("training").textContent = `${label}; trained by ${training}.`;
    $("reset").disabled = !state.do.length && !Object.keys(state.line).length;
    $("and").disabled = !state.do.length;
    foot();
  }

  /** What to do next, or why nothing changed. */
  function invitation() {
    const isIntact = !state.do.length && !Object.keys(state.line).length;
    if (isIntact) return " Now switch off a part, or move a carry.";
    const isCorrect = CarryViews.spoken(pass).endsWith("correct.");
    return isCorrect ? " This sum does not need what is changed." : "";
  }

  /** @summary What the answers are given under, as Python writes it. @param {State} state */
  function under(state) {
    const held = Object.entries(state.line).map(([id, value]) => `${id.replace("-", " ")} ${value}`);
    const parts = state.do.length || !held.length ? [state.do.length ? CarryState.call(state.do) : "intact"] : [];
    return [...parts, ...(held.length ? [`carry held: ${held.join(", ")}`] : [])].join("; ");
  }

  /** A hundred more sums, a few at a time so that the page stays alive. */
  function hundred() {
    const mine = (counted = counted || sides().map(() => CarryExperiment.counts()));
    const counters = sides().map(({ state, pass: { run } }, i) => ({ run, hook: whole(run, state), found: mine[i] }));
    const names = sides().map(({ suffix, state }) => ({ root: $(`counts${suffix}`), text: under(state) }));
    let left = CarryExperiment.EACH;
    (function some() {
      if (mine !== counted) return;
      const until = performance.now() + 40;
      for (; left && performance.now() < until; left--) CarryExperiment.answerEach(counters);
      names.forEach(({ root, text }, i) => CarryExperiment.show(root, mine[i], text));
      if (left) setTimeout(some);
    })();
  }

  function random() {
    const total = Math.floor(1000 * Math.random());
    const a = Math.floor((total + 1) * Math.random());
    change({ sum: [a, total - a] });
  }

  const typed = () => careful("sum", () => change({ sum: CarryState.parseSum(`${$("a").value}+${$("b").value}`) }));

  async function copy(/** @type {string} */ text, /** @type {string} */ what) {
    $("copied").textContent = "";
    $("python").hidden = true;
    try {
      await navigator.clipboard.writeText(text);
      $("copied").textContent = `${what} copied.`;
    } catch {
      Object.assign($("python"), { hidden: false, textContent: text });
    }
  }

  /** Do what the address says; a heading's address is left alone. */
  function follow() {
    const heading = location.hash && document.getElementById(location.hash.slice(1));
    if (heading && pass) return;
    const hash = heading ? "" : location.hash;
    const asked = new URLSearchParams(hash.slice(1)).get("run");
    const { id } = known.find((listed) => listed.id === asked) || known[0]; // what it can do has to be known first
    careful("run", async () => {
      const { config, lines } = await load(id);
      another = false;
      const runs = known.map(({ id }) => id);
      const { state: next, problems } = CarryState.parse(hash, INITIAL, { runs, config, lines });
      change(next, problems);
    });
  }

  function listen(/** @type {string} */ field, /** @type {string} */ about) {
    const apply = about === "source" ? chosen : typed;
    const step = (/** @type {number} */ by) => {
      $(field).value = String(Math.min(999, Math.max(0, (Number($(field).value) || 0) + by)));
      apply();
    };
    $(field).addEventListener("input", apply);
    CarryViews.onKeys($(field), { ArrowUp: 1, ArrowDown: -1 }, step);
    for (const button of document.querySelectorAll(`[data-step="${field}"]`)) {
      button.addEventListener("click", () => step(Number(button.getAttribute("data-by"))));
    }
  }

  /** @summary Give a picture a place for the second run's beside it. @param {string} id */
  function pair(id) {
    const first = $(id);
    const both = make("div", { class: "pg-both" });
    first.replaceWith(both);
    const other = first.cloneNode(false);
    other.id += "-2";
    const side = (/** @type {string} */ name, /** @type {Node} */ picture) =>
      make("div", { class: `pg-${name}`, role: "group" }, make("p", { class: "pg-of" }), picture);
    both.append(side("first", first), side("second", other));
  }

  function start() {
    PAIRED.forEach(pair);
    const turnTo = (/** @type {number} */ by) => change({ frame: Math.min(7, Math.max(1, state.frame + by)) });
    const clicks = {
      random,
      reset: () => ((another = false), change({ do: [], line: {} })),
      and: () => ((another = true), draw()),
      hundred,
      copy: () => copy(CarryState.python(state), "Python"),
      link: () => copy(location.href, "Link"),
      back: () => turnTo(-1),
      next: () => turnTo(1),
    };
    for (const [id, click] of Object.entries(clicks)) $(id).addEventListener("click", click);
    for (const [field, about] of Object.entries(NUMBERS)) listen(field, about);
    for (const control of [...$("form").elements.kind, $("at")]) control.addEventListener("change", chosen);
    $("run").replaceChildren(...known.map(({ id, label }) => make("option", { value: id }, label)));
    $("beside").append(...[...$("run").options].map((option) => option.cloneNode(true)));
    $("beside").addEventListener("change", () => change({ beside: $("beside").value }));
    $("run").addEventListener("change", () => change({ run: $("run").value }));
    $("form").addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
    $("watched").addEventListener("change", () => ((watched = Number($("watched").value)), draw()));
    CarryViews.onKeys($("frames"), { ArrowRight: 1, ArrowLeft: -1 }, turnTo);
    $("page").addEventListener("click", toggle);
    window.addEventListener("hashchange", follow);
    $("page").hidden = false;
    follow();
  }

  const list = (/** @type {Listed[]} */ runs) => ((known = runs), start()); // called by runs.js
  const receive = (/** @type {any} */ packed) => received.set(packed.id, packed); // called by a run's script
  return { list, receive };
})();
