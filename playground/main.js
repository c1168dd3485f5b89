// Puts the page together: what a reader does changes the state, the state is written into the address, views are drawn.
const CarryRuns = (() => {
  const { $, make, attentionMap, cellAt, token } = CarryViews;
  const { switching, chips, inAWord, toggled, neurons, topNeurons } = CarryControls;
  const folder = /** @type {HTMLScriptElement} */ (document.currentScript).src.replace(/[^/]*$/, "runs/");
  const INITIAL = /** @type {any} */ ({ run: "n2_s0.3_w0.2/0", sum: [352, 271], do: [], line: {}, frame: 1 });
  const NUMBERS = { a: "sum", b: "sum", a2: "source", b2: "source" }; // fields, and what each is part of
  const received = /** @type {Map<string, Packed>} */ (new Map());
  const loaded = /** @type {Map<string, Promise<Run>>} */ (new Map());
  const times = /** @type {number[]} */ ([]); // of passes, in ms
  let known = /** @type {Listed[]} */ ([]);
  let state = /** @type {State} */ (INITIAL);
  let wanted = state; // with what still waits for a run to load
  let pass = /** @type {any} */ (null); // a Pass
  let built = /** @type {any} */ (null); // elements that depend on the run's shape
  let counted = /** @type {Outcome[][] | null} */ (null);
  let first = ""; // when the first answer was there
  let watched = 7; // the position whose neurons are shown
  let turn = 0; // of a change: what belongs to an earlier one is dropped
  let another = false; // whether the next part begins an intervention of its own

  /** @summary Put lines beside the fields that they are about, the others away. @param {Problem[]} problems */
  function say(problems) {
    for (const about of ["run", "sum", "source"]) {
      const here = problems.filter(({ field }) => about === (["run", "source"].includes(field) ? field : "sum"));
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
    try {
      const run = await load(asked.run);
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
      compute(run);
      draw();
      say(problems);
      history.replaceState(history.state, "", CarryState.format(state));
      if (times.length < 2) setTimeout(foot, 0, 30);
    } catch (error) {
      wanted = state;
      $("run").value = state.run;
      say([{ field: "run", text: /** @type {Error} */ (error).message }]);
    }
  }

  /** @summary What random sums are counted under. @param {State} state */
  const key = ({ run, do: parts, line }) => JSON.stringify([run, parts, line]);

  function compute(/** @type {Run} */ run) {
    const tokens = CarryModel.encode(run.config, ...state.sum);
    const isSame = pass?.run === run && String(pass.sum) === String(state.sum);
    const intact = isSame ? pass.intact : CarryModel.forward(run, tokens);
    const hook = CarryModel.intervene(run, state.do);
    const start = performance.now();
    const unheld = CarryModel.forward(run, tokens, hook);
    times.push(performance.now() - start);
    const isHeld = Object.keys(state.line).length > 0;
    const cache = isHeld ? CarryModel.forward(run, tokens, whole(run)) : unheld;
    pass = { run, sum: state.sum, tokens, intact, unheld, cache, hook };
  }

  /** @summary The hook of all that the state changes: interventions, then carries that are held. @param {Run} run */
  function whole(run) {
    const [intervened, held] = [CarryModel.intervene(run, state.do), CarryModel.holdCoordinates(run, state.line)];
    return /** @type {Hook} */ ((name, x) => held(name, intervened(name, x)));
  }

  /** The foot, after some passes more so that it has a median to report. */
  function foot(more = 0) {
    for (let i = 0; i < more; i++) compute(pass.run);
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

  /** @summary The elements that depend on the run's shape. @param {Run} run */
  function build(run) {
    const { id, config } = run;
    const [layers, heads] = [config.layers, config.heads].map((n) => [...Array(n).keys()]);
    const each = layers.flatMap((layer) => heads.map((head) => ({ layer, head })));
    const maps = each.map(({ layer, head }) => {
      const onpointermove = (/** @type {PointerEvent} */ event) => hover(map.svg, layer, head, event);
      const listening = { onpointermove, onpointerleave: () => ($("hover").textContent = "") };
      const map = attentionMap(`head ${layer}:${head}`, { ...switching("heads", [layer, head]), ...listening });
      return { ...map, layer, head };
    });
    const strips = layers.map((layer) => ({ ...neurons(config, layer), layer })).reverse(); // the final MLP first
    const options = positions(config).map((text, i) => make("option", { value: i }, text));
    const panel = CarryPanel.panel(run);
    const sliders = CarryCoordinate.sliders(run, hold);
    const top = topNeurons(config);
    $("chips").replaceChildren(...chips(run));
    $("net").replaceChildren(panel.element);
    $("line").replaceChildren(...sliders.elements);
    $("top").replaceChildren(top.element);
    $("maps").replaceChildren(...maps.map(({ element }) => element));
    const named = strips.map(({ grid, layer }, i) => {
      return make("div", {}, make("p", { class: "pg-hint" }, `${i ? "" : "Final MLP: "}MLP ${layer}`), grid);
    });
    $("neurons").replaceChildren(...named);
    $("at").replaceChildren(make("option", { value: "" }, "all positions"), ...options);
    $("watched").replaceChildren(...options.map((option) => option.cloneNode(true)));
    [watched] = config.answer;
    built = { id, maps, strips, panel, sliders, top };
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

  /** @type {(svg: SVGElement, layer: number, head: number, event: PointerEvent) => void} */
  function hover(svg, layer, head, event) {
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

  function draw() {
    const { tokens, cache } = pass;
    const { label, training } = /** @type {Listed} */ (known.find(({ id }) => id === state.run));
    $("run").value = state.run;
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
    const pattern = (/** @type {any} */ { layer, head }) => CarryMaths.row(cache[`blocks.${layer}.attn.pattern`], head);
    for (const map of built.maps) map.draw(pattern(map), tokens);
    $("watched").value = watched;
    for (const strip of built.strips) strip.draw(pass, watched);
    built.panel.draw(pass);
    built.sliders.draw(pass, state);
    CarryViews.showDigits($("digits"), pass);
    CarryViews.showAnswer($("answer"), pass);
    CarryViews.showProbes($("probes"), pass);
    CarryViews.showPlanes($("planes"), pass);
    CarryStepper.show($("stepper"), pass, state.frame);
    if (!counted) $("counts").replaceChildren(); // those of another intervention
    $("page").classList.remove("pg-stale");
    $("spoken").textContent = `${CarryViews.spoken(pass)}${invitation()}`;
    $("call").textContent = under() + (another ? " | …" : "");
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

  /** What the answers are given under, as Python writes it. */
  function under() {
    const held = Object.entries(state.line).map(([id, value]) => `${id.replace("-", " ")} ${value}`);
    const parts = state.do.length || !held.length ? [state.do.length ? CarryState.call(state.do) : "intact"] : [];
    return [...parts, ...(held.length ? [`carry held: ${held.join(", ")}`] : [])].join("; ");
  }

  /** A hundred more sums, a few at a time so that the page stays alive. */
  function hundred() {
    const { run } = pass;
    const hook = whole(run);
    const mine = (counted = counted || CarryExperiment.counts());
    let left = CarryExperiment.EACH;
    (function some() {
      if (mine !== counted) return;
      const until = performance.now() + 40;
      for (; left && performance.now() < until; left--) CarryExperiment.answerEach(run, hook, mine);
      CarryExperiment.show($("counts"), mine, under());
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

  function start() {
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
