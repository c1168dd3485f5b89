// Puts the page together: what a reader does changes the state, the state is written into the address, views are drawn.
"use strict";

const CarryRuns = (() => {
  const { make, attentionMap, cellAt, SYMBOLS } = CarryViews;
  const { HOW, parts, isOff, toggled, neurons } = CarryControls;
  const opened = performance.now();
  const folder = /** @type {HTMLScriptElement} */ (document.currentScript).src.replace(/[^/]*$/, "runs/");
  /** @type {Listed[]} */
  let known = [];
  /** @type {Map<string, Run>} */
  const loaded = new Map();
  /** @type {State} */
  let state = CarryState.parse("", known, () => /** @type {any} */ (null)).state;
  /** @type {Pass} */
  let pass;
  /** @type {any} */
  let built = null;
  /** @type {number[]} */
  const times = [];
  /** @type {string | null} */
  let first = null;
  /** @type {ReturnType<typeof CarryExperiment.counts> | null} */
  let counted = null;
  let watched = 7; // the position whose neurons are shown
  let turn = 0; // of a change: what belongs to an earlier one is dropped

  /** @param {string} id @returns {any} */
  const $ = (id) => document.getElementById(`pg-${id}`);
  const say = (/** @type {string} */ text) => ($("message").textContent = text);

  /** Load a run's script, once.
   * @param {string} id @returns {Promise<Run>} */
  function load(id) {
    const run = loaded.get(id);
    if (run) return Promise.resolve(run);
    const { file } = /** @type {Listed} */ (known.find((each) => each.id === id));
    return new Promise((resolve, reject) => {
      const script = make("script", { src: folder + file });
      script.addEventListener("load", () => resolve(/** @type {Run} */ (loaded.get(id))));
      script.addEventListener("error", () => reject(new Error(`The weights of run ${id} cannot be loaded: build the book again with make book.`)));
      document.head.append(script);
    });
  }

  /** Take on another state, load what it needs, compute, draw.
   * @param {Partial<State>} next @param {string[]} [problems] */
  async function change(next, problems = []) {
    const mine = ++turn;
    const asked = { ...state, ...next };
    try {
      const run = await load(asked.run);
      if (mine !== turn) return;
      if (asked.do && asked.run !== state.run) {
        try {
          CarryState.parseIntervention(JSON.stringify(asked.do), run.config);
        } catch (error) {
          problems.push(/** @type {Error} */ (error).message);
          asked.do = null;
        }
      }
      if (JSON.stringify([asked.run, asked.do]) !== JSON.stringify([state.run, state.do])) counted = null;
      state = asked;
      if (!built || built.id !== run.id) build(run);
      compute(run);
      draw();
      say(problems.join(" "));
      history.replaceState(history.state, "", CarryState.format(state));
    } catch (error) {
      say(/** @type {Error} */ (error).message);
    }
  }

  /** @param {Run} run */
  function compute(run) {
    const tokens = CarryModel.encode(run.config, ...state.sum);
    const intact = CarryModel.forward(run, tokens);
    const hook = state.do ? CarryModel.intervene(run, state.do) : undefined;
    const start = performance.now();
    const cache = hook ? CarryModel.forward(run, tokens, hook) : CarryModel.forward(run, tokens);
    times.push(performance.now() - start);
    pass = { run, sum: state.sum, tokens, intact, cache, part: state.do };
  }

  /** @param {Part["field"]} field @param {any} value */
  const toggle = (field, value) => change({ do: CarryState.tidy({ ...toggled(state.do, field, value), ...how() }) });

  /** What the controls say is put in the place of what is switched off. */
  function how() {
    const kind = String(new FormData($("form")).get("kind"));
    const at = $("at").value;
    const source = kind === "Patch" ? CarryState.parseSum(`${$("a2").value}+${$("b2").value}`) : undefined;
    return { kind, source, positions: at ? at.split(",").map(Number) : undefined };
  }

  /** The elements that depend on the run's shape.
   * @param {Run} run */
  function build(run) {
    const { config } = run;
    const layers = Array.from({ length: config.layers }, (_, layer) => layer);
    const switches = layers.flatMap((layer) => parts(config, layer).map((part) => ({ ...part, layer, button: make("button", { type: "button", class: "pg-switch", "aria-pressed": "false", onclick: () => toggle(part.field, part.value) }, part.label) })));
    $("parts").replaceChildren(
      ...layers.map((layer) => make("fieldset", {}, make("legend", {}, `Layer ${layer}`), ...switches.filter((part) => part.layer === layer).map((part) => part.button))),
    );
    const maps = layers.flatMap((layer) => Array.from({ length: config.heads }, (_, head) => {
      const map = { ...attentionMap(`head ${layer}:${head}`), layer, head };
      map.button.addEventListener("click", () => toggle("heads", [layer, head]));
      map.button.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => hover(map, event));
      map.button.addEventListener("pointerleave", () => ($("hover").textContent = ""));
      return map;
    })); // prettier-ignore
    $("maps").replaceChildren(...maps.map((map) => map.button));
    const strips = layers.map((layer) => ({ layer, ...neurons(config, layer, toggle) }));
    $("neurons").replaceChildren(...strips.map(({ layer, grid }) => make("div", {}, make("p", {}, `MLP ${layer}`), grid)));
    const positions = Array.from({ length: 3 * config.width + 1 }, (_, i) => make("option", { value: i }, `token ${i}`));
    $("at").replaceChildren(make("option", { value: "" }, "all tokens"), ...positions);
    $("watched").replaceChildren(...positions.map((option) => option.cloneNode(true)));
    [watched] = config.answer;
    built = { id: run.id, switches, maps, strips };
  }

  /** @param {{ svg: SVGElement, layer: number, head: number }} map @param {PointerEvent} event */
  function hover({ svg, layer, head }, event) {
    const cell = cellAt(svg, event);
    const { data } = pass.cache[`blocks.${layer}.attn.pattern`];
    const name = (/** @type {number} */ i) => `“${SYMBOLS[pass.tokens[i]]}” (token ${i})`;
    $("hover").textContent = cell ? `Head ${layer}:${head}: ${name(cell[0])} looks at ${name(cell[1])} with ${data[head * 100 + cell[0] * 10 + cell[1]].toFixed(3)}.` : "";
  }

  function draw() {
    const { run, tokens, cache } = pass;
    const about = /** @type {Listed} */ (known.find(({ id }) => id === state.run));
    $("run").value = state.run;
    ["a", "b"].forEach((field, i) => {
      if (document.activeElement !== $(field)) $(field).value = state.sum[i];
    });
    const kind = state.do ? state.do.kind : /** @type {string} */ (new FormData($("form")).get("kind"));
    for (const radio of $("form").elements.kind) radio.checked = radio.value === kind;
    $("source").hidden = kind !== "Patch";
    if (state.do && state.do.source) [$("a2").value, $("b2").value] = state.do.source;
    const at = ((state.do && state.do.positions) || []).join(",");
    if (state.do && ![...$("at").options].some((option) => option.value === at)) $("at").append(make("option", { value: at }, `tokens ${at}`));
    if (state.do) $("at").value = at;
    for (const { field, value, button } of built.switches) button.setAttribute("aria-pressed", String(isOff(state.do, field, value)));
    for (const { draw, layer, head } of built.maps) draw(cache[`blocks.${layer}.attn.pattern`].data.subarray(head * 100, head * 100 + 100), tokens, isOff(state.do, "heads", [layer, head]));
    $("watched").value = watched;
    for (const { layer, draw } of built.strips) draw(cache[`blocks.${layer}.mlp.post`], watched, state.do);
    CarryViews.showAnswer($("answer"), pass);
    CarryViews.showProbes($("probes"), pass);
    CarryViews.showPlanes($("planes"), pass);
    CarryStepper.show($("stepper"), pass, state.frame);
    if (counted) CarryExperiment.show($("counts"), counted, under());
    else $("counts").replaceChildren();
    $("spoken").textContent = CarryViews.spoken(pass);
    $("call").textContent = state.do ? CarryState.call(state.do) : "intact";
    $("training").textContent = `${about.label}; trained by ${about.training}.`;
    $("reset").disabled = !state.do;
    first = first || `first answer ${((performance.now() - opened) / 1000).toFixed(2)} s after the page’s scripts began`;
    const median = [...times].sort((x, y) => x - y)[Math.floor(times.length / 2)];
    $("foot").textContent = `On this machine: ${first}; a pass takes ${median.toFixed(1)} ms (median of ${times.length}).`;
  }

  const under = () => (state.do ? `with ${CarryState.call(state.do)}` : "intact");

  /** A hundred more sums, a few at a time so that the page stays alive. */
  function hundred() {
    const { run } = pass;
    const hook = state.do ? CarryModel.intervene(run, state.do) : undefined;
    const mine = (counted = counted || CarryExperiment.counts());
    let left = CarryExperiment.EACH;
    function some() {
      if (mine !== counted) return;
      const until = performance.now() + 40;
      while (left && performance.now() < until) {
        const start = performance.now();
        CarryExperiment.answerEach(run, hook, mine);
        times.push((performance.now() - start) / 5);
        left--;
      }
      draw();
      if (left) setTimeout(some);
    }
    some();
  }

  /** The sum of two fields, or a line about what is wrong with them. */
  function typed() {
    try {
      change({ sum: CarryState.parseSum(`${$("a").value}+${$("b").value}`) });
    } catch (error) {
      say(/** @type {Error} */ (error).message);
    }
  }

  /** The controls of what is put in the place of a part were changed. */
  function chosen() {
    $("source").hidden = new FormData($("form")).get("kind") !== "Patch";
    try {
      if (state.do) change({ do: CarryState.tidy({ ...state.do, ...how() }) });
    } catch (error) {
      say(/** @type {Error} */ (error).message);
    }
  }

  /** @param {string} text @param {string} what */
  async function copy(text, what) {
    try {
      await navigator.clipboard.writeText(text);
      say(`${what} copied.`);
    } catch {
      $("python").hidden = false;
      $("python").textContent = text;
    }
  }

  function follow() {
    const hash = location.hash;
    if (hash && !hash.includes("=") && document.getElementById(hash.slice(1))) return; // a heading
    const asked = new URLSearchParams(hash.slice(1)).get("run");
    const { id } = known.find((each) => each.id === asked) || known[0]; // what it can do has to be known first
    load(id).then((found) => {
      const { state: next, problems } = CarryState.parse(hash, known, () => found.config);
      change(next, problems);
    }, (error) => say(error.message)); // prettier-ignore
  }

  function start() {
    $("run").replaceChildren(...known.map(({ id, label }) => make("option", { value: id }, label)));
    $("run").addEventListener("change", () => change({ run: $("run").value }));
    for (const field of ["a", "b", "a2", "b2"]) {
      const apply = field.length > 1 ? chosen : typed;
      const step = (/** @type {number} */ by) => {
        $(field).value = String(Math.min(999, Math.max(0, (Number($(field).value) || 0) + by)));
        apply();
      };
      $(field).addEventListener("input", apply);
      $(field).addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
        const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
        if (by) event.preventDefault(), step(by);
      });
      for (const button of document.querySelectorAll(`[data-step="${field}"]`)) button.addEventListener("click", () => step(Number(/** @type {HTMLElement} */ (button).dataset.by)));
    }
    $("random").addEventListener("click", () => {
      const total = Math.floor(1000 * Math.random());
      const a = Math.floor((total + 1) * Math.random());
      change({ sum: [a, total - a] });
    });
    for (const control of [...$("form").elements.kind, $("at")]) control.addEventListener("change", chosen);
    $("form").addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
    $("watched").addEventListener("change", () => ((watched = Number($("watched").value)), draw()));
    $("reset").addEventListener("click", () => change({ do: null }));
    $("hundred").addEventListener("click", hundred);
    $("copy").addEventListener("click", () => copy(CarryState.python(state), "Python"));
    $("link").addEventListener("click", () => copy(location.href, "The link"));
    const turnTo = (/** @type {number} */ by) => change({ frame: Math.min(7, Math.max(1, state.frame + by)) });
    $("back").addEventListener("click", () => turnTo(-1));
    $("next").addEventListener("click", () => turnTo(1));
    $("frames").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (by) event.preventDefault(), event.stopPropagation(), turnTo(by); // the theme turns pages by these keys
    });
    window.addEventListener("hashchange", follow);
    $("page").hidden = false;
    follow();
  }

  return {
    /** Called by runs.js.
     * @param {Listed[]} runs */
    list(runs) {
      known = runs;
      start();
    },
    /** Called by a run's script.
     * @param {any} packed */
    receive: (packed) => loaded.set(packed.id, CarryModel.unpack(packed)),
  };
})();
