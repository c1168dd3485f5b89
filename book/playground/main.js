// Puts the page together: what a reader does changes the state, the state is written into the address, views are drawn.
"use strict";

const CarryRuns = (() => {
  const { make, attentionMap, cellAt, SYMBOLS } = CarryViews;
  const { parts, isOff, toggled, neurons } = CarryControls;
  const folder = /** @type {HTMLScriptElement} */ (document.currentScript).src.replace(/[^/]*$/, "runs/");
  /** @type {any} */
  const INITIAL = { run: "n2_s0.3_w0.2/0", sum: [345, 278], do: [], frame: 1 };
  /** @type {Listed[]} */
  let known = [];
  /** @type {Map<string, any>} */
  const received = new Map();
  /** @type {Map<string, Promise<Run>>} */
  const loaded = new Map();
  let state = /** @type {State} */ (INITIAL);
  let wanted = state; // with what still waits for a run to load
  /** @type {Pass} */
  let pass;
  /** @type {any} */
  let built = null;
  /** @type {number[]} */
  const times = [];
  let first = ""; // when the first answer was there
  /** @type {Outcome[][] | null} */
  let counted = null;
  let watched = 7; // the position whose neurons are shown
  let turn = 0; // of a change: what belongs to an earlier one is dropped
  let another = false; // whether the next part begins an intervention of its own

  /** @param {string} id @returns {any} */
  const $ = (id) => document.getElementById(`pg-${id}`);

  /** Put lines beside the fields that they are about, and away those that were there.
   * @param {Problem[]} problems */
  function say(problems) {
    for (const line of document.querySelectorAll("[data-about]")) {
      const about = String(line.getAttribute("data-about"));
      const here = problems.filter(({ field }) => about.includes(["run", "source"].includes(field) ? field : "sum"));
      line.textContent = here.map(({ text }) => text).join(" ");
    }
    for (const field of ["a", "b", "a2", "b2"]) {
      const wrong = problems.some((problem) => problem.field === (field.length > 1 ? "source" : "sum"));
      $(field).setAttribute("aria-invalid", String(wrong));
    }
  }

  /** Do what may meet bad input, and say so beside its field if it does.
   * @param {string} field @param {() => void} act */
  function careful(field, act) {
    try {
      act();
    } catch (error) {
      say([{ field, text: /** @type {Error} */ (error).message }]);
    }
  }

  /** A run, whose script is loaded once.
   * @param {string} id @returns {Promise<Run>} */
  function load(id) {
    const { file } = /** @type {Listed} */ (known.find((each) => each.id === id));
    const run = loaded.get(id) || new Promise((resolve, reject) => {
      const script = make("script", { src: folder + file, charset: "utf-16" });
      script.addEventListener("load", () => resolve(CarryMaths.unpack(received.get(id))));
      const text = `The weights of run ${id} cannot be loaded: build the book again with make book.`;
      script.addEventListener("error", () => (loaded.delete(id), reject(new Error(text))));
      document.head.append(script);
    }); // prettier-ignore
    loaded.set(id, run);
    return run;
  }

  /** Take on another state, load what it needs, compute, draw.
   * @param {Partial<State>} next @param {Problem[]} [problems] */
  async function change(next, problems = []) {
    const mine = ++turn;
    const asked = (wanted = { ...wanted, ...next });
    try {
      const run = await load(asked.run);
      if (mine !== turn) return;
      if (asked.do.length && asked.run !== state.run) {
        try {
          CarryState.parseIntervention(JSON.stringify(asked.do), run.config);
        } catch (error) {
          problems.push({ field: "do", text: /** @type {Error} */ (error).message });
          asked.do = [];
        }
      }
      if (JSON.stringify([asked.run, asked.do]) !== JSON.stringify([state.run, state.do])) counted = null;
      state = asked;
      if (!built || built.id !== run.id) build(run);
      compute(run);
      draw();
      say(problems);
      history.replaceState(history.state, "", CarryState.format(state));
      if (times.length < 2) setTimeout(time);
    } catch (error) {
      wanted = state;
      $("run").value = state.run;
      say([{ field: "run", text: /** @type {Error} */ (error).message }]);
    }
  }

  /** @param {Run} run */
  function compute(run) {
    const tokens = CarryModel.encode(run.config, ...state.sum);
    const intact = CarryModel.forward(run, tokens);
    const hook = CarryModel.intervene(run, state.do);
    const start = performance.now();
    const cache = CarryModel.forward(run, tokens, hook);
    times.push(performance.now() - start);
    pass = { run, sum: state.sum, tokens, intact, cache, parts: state.do };
  }

  /** Time some passes more, of the sum that is shown, so that the foot has a median to report. */
  function time() {
    for (let i = 0; i < 30; i++) compute(pass.run);
    foot();
  }

  function foot() {
    first = first || `first answer ${(performance.now() / 1000).toFixed(2)} s after the page was opened`;
    const median = [...times].sort((x, y) => x - y)[Math.floor(times.length / 2)];
    const passes = `a pass takes ${median.toFixed(1)} ms (median of ${times.length})`;
    $("foot").textContent = `On this machine: ${first}; ${passes}.`;
  }

  /** @param {Field} field @param {any} value */
  const toggle = (field, value) =>
    careful("source", () => {
      const next = toggled(state.do, field, value, another || !state.do.length ? how() : null);
      if (next.length >= state.do.length) another = false;
      change({ do: next });
    });

  /** What the controls say is put in the place of what is switched off. */
  function how() {
    const kind = String(new FormData($("form")).get("kind"));
    const at = $("at").value;
    const source = kind === "Patch" ? CarryState.parseSum(`${$("a2").value}+${$("b2").value}`) : undefined;
    return { kind, source, positions: at ? at.split(",").map(Number) : undefined };
  }

  /** The controls of what is put in the place of a part were changed. */
  function chosen() {
    $("source").hidden = new FormData($("form")).get("kind") !== "Patch";
    careful("source", () => {
      const changed = { ...state.do[state.do.length - 1], ...how() };
      if (another || !state.do.length) say([]);
      else change({ do: CarryState.tidy([...state.do.slice(0, -1), changed]) });
    });
  }

  /** The elements that depend on the run's shape.
   * @param {Run} run */
  function build(run) {
    const { config } = run;
    const layers = Array.from({ length: config.layers }, (_, layer) => layer);
    const switches = layers.map((layer) =>
      parts(config, layer).map(({ label, field, value }) => {
        const onclick = () => toggle(field, value);
        return { field, value, button: make("button", { type: "button", class: "pg-switch", onclick }, label) };
      }),
    );
    const sets = switches.map((some, layer) =>
      make("fieldset", {}, make("legend", {}, `Layer ${layer}`), ...some.map(({ button }) => button)),
    );
    const maps = layers.flatMap((layer) =>
      Array.from({ length: config.heads }, (_, head) => {
        const map = { ...attentionMap(`head ${layer}:${head}`), layer, head };
        map.element.addEventListener("click", () => toggle("heads", [layer, head]));
        map.element.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => hover(map, event));
        map.element.addEventListener("pointerleave", () => ($("hover").textContent = ""));
        return map;
      }),
    );
    const strips = layers.map((layer) => ({ layer, ...neurons(config, layer, toggle) }));
    const options = Array.from({ length: 3 * config.width + 1 }, (_, i) => make("option", { value: i }, `token ${i}`));
    $("parts").replaceChildren(...sets);
    $("maps").replaceChildren(...maps.map(({ element }) => element));
    $("neurons").replaceChildren(...strips.flatMap(({ layer, grid }) => [make("p", {}, `MLP ${layer}`), grid]));
    $("at").replaceChildren(make("option", { value: "" }, "all tokens"), ...options);
    $("watched").replaceChildren(...options.map((option) => option.cloneNode(true)));
    [watched] = config.answer;
    built = { id: run.id, switches: switches.flat(), maps, strips };
  }

  /** @param {{ svg: SVGElement, layer: number, head: number }} map @param {PointerEvent} event */
  function hover({ svg, layer, head }, event) {
    const cell = cellAt(svg, event);
    const { data } = pass.cache[`blocks.${layer}.attn.pattern`];
    const name = (/** @type {number} */ i) => `“${SYMBOLS[pass.tokens[i]]}” (token ${i})`;
    const looks = (/** @type {number[]} */ [query, key]) =>
      `${name(query)} looks at ${name(key)} with ${data[head * 100 + query * 10 + key].toFixed(3)}`;
    $("hover").textContent = cell ? `Head ${layer}:${head}: ${looks(cell)}.` : "";
  }

  /** Show what an intervention has put in the place of its parts.
   * @param {Intervention} part */
  function showHow({ kind, source, positions }) {
    for (const radio of $("form").elements.kind) radio.checked = radio.value === kind;
    $("source").hidden = kind !== "Patch";
    if (source) [$("a2").value, $("b2").value] = source;
    const at = (positions || []).join(",");
    const listed = [...$("at").options].some((option) => option.value === at);
    if (!listed) $("at").append(make("option", { value: at }, `tokens ${at}`));
    $("at").value = at;
  }

  function draw() {
    const { run, tokens, cache } = pass;
    const { label, training } = /** @type {Listed} */ (known.find(({ id }) => id === state.run));
    $("run").value = state.run;
    ["a", "b"].forEach((field, i) => {
      if (document.activeElement !== $(field)) $(field).value = state.sum[i];
    });
    if (state.do.length && !another) showHow(state.do[state.do.length - 1]);
    for (const { field, value, button } of built.switches) {
      button.setAttribute("aria-pressed", String(isOff(state.do, field, value)));
    }
    for (const { draw, layer, head } of built.maps) {
      const pattern = CarryMaths.row(cache[`blocks.${layer}.attn.pattern`], head);
      draw(pattern, [...tokens].map((token) => SYMBOLS[token]), isOff(state.do, "heads", [layer, head]));
    } // prettier-ignore
    $("watched").value = watched;
    for (const { layer, draw } of built.strips) draw(cache[`blocks.${layer}.mlp.post`], watched, state.do);
    CarryViews.showAnswer($("answer"), pass);
    CarryViews.showProbes($("probes"), pass);
    CarryViews.showPlanes($("planes"), pass);
    CarryStepper.show($("stepper"), pass, state.frame);
    if (counted) CarryExperiment.show($("counts"), counted, under());
    else $("counts").replaceChildren();
    $("spoken").textContent = CarryViews.spoken(pass);
    $("call").textContent = under() + (another ? " | …" : "");
    $("training").textContent = `${label}; trained by ${training}.`;
    $("reset").disabled = $("and").disabled = !state.do.length;
    foot();
  }

  const under = () => (state.do.length ? CarryState.call(state.do) : "intact");

  /** A hundred more sums, a few at a time so that the page stays alive. */
  function hundred() {
    const { run } = pass;
    const hook = CarryModel.intervene(run, state.do);
    const mine = (counted = counted || CarryExperiment.counts());
    let left = CarryExperiment.EACH;
    function some() {
      if (mine !== counted) return;
      for (const until = performance.now() + 40; left && performance.now() < until; left--) {
        const start = performance.now();
        times.push((CarryExperiment.answerEach(run, hook, mine), (performance.now() - start) / 5));
      }
      CarryExperiment.show($("counts"), mine, under());
      foot();
      if (left) setTimeout(some);
    }
    some();
  }

  const typed = () => careful("sum", () => change({ sum: CarryState.parseSum(`${$("a").value}+${$("b").value}`) }));

  /** @param {string} text @param {string} what */
  async function copy(text, what) {
    $("copied").textContent = "";
    $("python").hidden = true;
    try {
      await navigator.clipboard.writeText(text);
      $("copied").textContent = `${what} copied.`;
    } catch {
      $("python").hidden = false;
      $("python").textContent = text;
    }
  }

  async function follow() {
    const heading = location.hash && document.getElementById(location.hash.slice(1));
    if (heading && pass) return;
    const hash = heading ? "" : location.hash;
    const asked = new URLSearchParams(hash.slice(1)).get("run");
    const { id } = known.find((each) => each.id === asked) || known[0]; // what it can do has to be known first
    try {
      const { config } = await load(id);
      another = false;
      const { state: next, problems } = CarryState.parse(hash, INITIAL, { runs: known.map((each) => each.id), config });
      change(next, problems);
    } catch (error) {
      say([{ field: "run", text: /** @type {Error} */ (error).message }]);
    }
  }

  /** @param {"a" | "b" | "a2" | "b2"} field */
  function listen(field) {
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
    for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(`[data-step="${field}"]`))) {
      button.addEventListener("click", () => step(Number(button.dataset.by)));
    }
  }

  function start() {
    const turnTo = (/** @type {number} */ by) => change({ frame: Math.min(7, Math.max(1, state.frame + by)) });
    /** @type {Record<string, () => void>} */
    const clicks = {
      random() {
        const total = Math.floor(1000 * Math.random());
        const a = Math.floor((total + 1) * Math.random());
        change({ sum: [a, total - a] });
      },
      reset: () => ((another = false), change({ do: [] })),
      and: () => ((another = true), draw()),
      hundred,
      copy: () => copy(CarryState.python(state), "Python"),
      link: () => copy(location.href, "Link"),
      back: () => turnTo(-1),
      next: () => turnTo(1),
    };
    for (const [id, click] of Object.entries(clicks)) $(id).addEventListener("click", click);
    for (const field of /** @type {const} */ (["a", "b", "a2", "b2"])) listen(field);
    for (const control of [...$("form").elements.kind, $("at")]) control.addEventListener("change", chosen);
    $("run").replaceChildren(...known.map(({ id, label }) => make("option", { value: id }, label)));
    $("run").addEventListener("change", () => change({ run: $("run").value }));
    $("form").addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
    $("watched").addEventListener("change", () => ((watched = Number($("watched").value)), draw()));
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
    list: (runs) => ((known = runs), start()),
    /** Called by a run's script.
     * @param {any} packed */
    receive: (packed) => received.set(packed.id, packed),
  };
})();
