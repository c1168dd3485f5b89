// The playground's arithmetic against PyTorch's: tests/pages/test_playground.py exports the runs and starts this.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { test } = require("node:test");
const vm = require("node:vm");

const [SCRIPTS, REFERENCE] = [process.env.PLAYGROUND_RUNS, process.env.PLAYGROUND_REFERENCE];
const PAGE = path.join(__dirname, "..");
const PARTS = ["maths", "model", "state"];
const NEAR = 1e-3; // relative to the largest value of an activation, as are ties of two logits
const HELD_NEAR = 1e-4; // the same of logits with a carry held at a coordinate

/** The page's scripts, run as a browser runs them. */
const context = vm.createContext({ ...globalThis, Blob, DecompressionStream, Response, TextDecoder, URLSearchParams });
for (const part of ["maths", "model", "state"]) {
  vm.runInContext(fs.readFileSync(path.join(PAGE, `${part}.js`), "utf8"), context, { filename: `${part}.js` });
}
const { maths, model, state } = vm.runInContext("({ maths: CarryMaths, model: CarryModel, state: CarryState })", context);

function unpacked(name) {
  let packed;
  const script = fs.readFileSync(path.join(SCRIPTS, `${name}.js`), "utf16le").slice(1); // without the byte order mark
  vm.runInNewContext(script, { CarryRuns: { receive: (given) => (packed = given) } });
  return maths.unpack(packed);
}

/** How far apart two activations are at most, relative to the largest value; where both are masked they agree. */
function apart(ours, theirs) {
  let [largest, off] = [0, 0];
  theirs.forEach((x, i) => {
    if (x < -1e29) return assert.strictEqual(ours[i], -Infinity);
    largest = Math.max(largest, Math.abs(x));
    off = Math.max(off, Math.abs(x - ours[i]));
  });
  return { largest, off: off / largest };
}

test("every stretch of coordinates with the same digit is found, a narrow one too", () => {
  const digit = (value) => (value < 0.123 ? 5 : value < 0.126 ? 7 : value < 1.3 ? 6 : 5);
  const found = model.stretches(digit, -0.5, 1.5);
  assert.strictEqual(found.map((stretch) => stretch.digit).join(), "5,7,6,5");
  [-0.5, 0.123, 0.126, 1.3].forEach((from, i) => assert.ok(Math.abs(found[i].from - from) < 1e-4));
  assert.deepStrictEqual(JSON.stringify(model.stretches(() => 3, 0, 1)), '[{"from":0,"digit":3}]');
});

for (const file of SCRIPTS ? fs.readdirSync(REFERENCE).sort() : []) {
  const name = path.basename(file, ".json");
  const expected = JSON.parse(fs.readFileSync(path.join(REFERENCE, file), "utf8"));

  test(`${name}: every hook point is PyTorch's`, async () => {
    const run = await unpacked(name);
    for (const [i, [a, b]] of expected.sums.slice(0, 3).entries()) {
      const cache = model.forward(run, model.encode(run.config, a, b));
      assert.deepStrictEqual(Object.keys(cache).sort(), Object.keys(expected.activations).sort());
      for (const [point, values] of Object.entries(expected.activations)) {
        const theirs = values[i].flat(Infinity);
        assert.strictEqual(cache[point].data.length, theirs.length);
        const { off } = apart(cache[point].data, theirs);
        assert.ok(off <= NEAR, `${point} is off by ${off}`);
      }
    }
  });

  for (const kind of ["intact", "changed"]) {
    test(`${name}: ${expected.sums.length} answers, ${kind}`, async (t) => {
      const run = await unpacked(name);
      const written = kind === "changed" ? expected.interventions : ["[]"];
      const hooks = written.map((text) => model.intervene(run, state.parseIntervention(text, run.config)));
      let [ties, most] = [0, 0];
      expected.sums.forEach(([a, b], i) => {
        const { data } = model.forward(run, model.encode(run.config, a, b), hooks[i % hooks.length]).logits;
        run.config.answer.forEach((position, digit) => {
          const [ours, theirs] = [data.subarray(position * 12, position * 12 + 12), expected[`${kind}_logits`][i][digit]];
          const { off, largest } = apart(ours, theirs);
          most = Math.max(most, off);
          if (maths.argmax(ours) === maths.argmax(theirs)) return;
          const [first, second] = [...theirs].sort((x, y) => y - x);
          const said = `sum ${a} + ${b}, ${written[i % hooks.length]}, digit ${digit}: ${ours} is not ${theirs}`;
          assert.ok(first - second < NEAR * largest, said);
          ties++;
        });
      });
      assert.ok(most < 5 * NEAR, `logits are off by ${most}`);
      t.diagnostic(`${ties} digits differ by a tie; logits differ by ${most.toExponential(1)} of the largest at most`);
    });
  }

  test(`${name}: logits with a carry held at a coordinate, and where the digit changes`, async () => {
    const run = await unpacked(name);
    assert.strictEqual(expected.held.length > 0, run.config.layers > 1);
    const unheld = new Map(); // passes with nothing held: the shortcut of the page's slider starts from these
    for (const { do: text, held: asked, line: id, sums, logits } of expected.held) {
      const line = model.linesOf(run).find((x) => x.id === id);
      const intervened = model.intervene(run, state.parseIntervention(text, run.config));
      const held = model.holdCoordinates(run, asked);
      sums.forEach(([a, b], i) => {
        const tokens = model.encode(run.config, a, b);
        const { data } = model.forward(run, tokens, (point, x) => held(point, intervened(point, x))).logits;
        const case_ = `sum ${a} + ${b}, ${text}, ${JSON.stringify(asked)}`;
        run.config.answer.forEach((position, digit) => {
          const [ours, theirs] = [data.subarray(position * 12, position * 12 + 12), logits[i][digit]];
          const { off } = apart(ours, theirs);
          assert.ok(off < HELD_NEAR, `${case_}: logits are off by ${off}`);
          assert.strictEqual(maths.argmax(ours), maths.argmax(theirs), case_);
        });
        const key = `${text} ${a} + ${b}`;
        if (!unheld.has(key)) unheld.set(key, model.forward(run, tokens, intervened));
        const pass = { unheld: unheld.get(key), hook: intervened };
        const digit = model.digitAt(run, line, pass, asked)(asked[id]);
        assert.strictEqual(digit, maths.argmax(logits[i][line.column]), case_);
      });
    }
  });

  test(`${name}: the address holds every intervention`, async () => {
    const { config } = await unpacked(name);
    for (const text of expected.interventions) {
      const part = state.parseIntervention(text, config);
      const { state: read, problems } = state.parse(state.format({ do: part }), { do: [] }, { config });
      assert.deepStrictEqual([JSON.stringify(read.do), problems.length], [JSON.stringify(part), 0]);
    }
  });
}
