// The playground's reader of addresses, given what it should not be. Run by tests/pages/test_playground.py, or by Node.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { test } = require("node:test");
const vm = require("node:vm");

const script = path.join(__dirname, "..", "state.js");
const context = vm.createContext({ URLSearchParams });
vm.runInContext(fs.readFileSync(script, "utf8"), context, { filename: script });
const state = vm.runInContext("CarryState", context);

const INITIAL = { run: "n2_s0.3_w0.2/0", sum: [345, 278], beside: "", do: [], line: {}, frame: 1 };
const CONFIG = { layers: 2, heads: 2, d_ff: 128, width: 3 };
const BOUNDS = { runs: ["n2_s0.3_w0.2/0", "n2_s0.3_w0.2/1"], config: CONFIG, lines: [{ id: "hundreds" }], epochs: 100 };
const HOSTILE = [
  "", "null", "[null]", "{}", "1", '"x"', "NaN", "١", "1e999", "-1", "0x1", "345+", "345+278+1", "<b>", "__proto__",
  '{"__proto__":[1]}', '{"constructor":[1]}', '{"toString":[1]}', '{"kind":{"toString":1}}', '{"kind":"constructor"}',
  '{"heads":[{"length":2,"0":1,"1":0}]}', '{"heads":[[1,0.5]]}', '{"heads":[[7,0]]}', '{"heads":[[1,0],null]}',
  '{"mlps":["1"]}', '{"mlps":[1],"heads":[]}', '{"names":[["blocks.1.mlp.skip"]]}', '{"names":["blocks.9.mlp.skip"]}',
  '{"kind":"Patch","heads":[[1,0]]}', '{"kind":"Patch","heads":[[1,0]],"source":[999,999]}',
  '{"kind":"Ablation","heads":[[1,0]],"source":[1,2]}', '{"kind":"MeanAblation","patterns":[[1,0]]}',
  `{"heads":${"[".repeat(20000)}${"]".repeat(20000)}}`, "[".repeat(100000), "x".repeat(100000),
  "hundreds:", "hundreds:2", "hundreds:-0.6", "hundreds:0.1234", "hundreds:1e0", "tens:0.5", "units:1", "0:0.5", ",",
  "hundreds:0.5,", "hundreds:NaN", "__proto__:1", "hundreds:.5",
]; // prettier-ignore

for (const key of ["run", "sum", "beside", "do", "line", "frame", "", "epoch", "__proto__", "constructor"]) {
  test(`nothing that the address has as ${key || "a value without a name"} is taken unseen`, () => {
    for (const text of HOSTILE) {
      const hash = `#${key}=${encodeURIComponent(text)}`;
      const { state: read, problems } = state.parse(hash, INITIAL, BOUNDS);
      if (key === "do" && text === "{}") continue; // an ablation of nothing
      if (key === "frame" && text === "1") continue;
      assert.strictEqual(JSON.stringify(read), JSON.stringify(INITIAL), hash);
      assert.strictEqual(problems.length, 1, hash);
      assert.match(problems[0].text, /^.{9,240}\.$/);
    }
  });
}

test("a second run has what the first has changed in the part that matches", () => {
  const run = (layers, decision_head) => ({ config: { ...CONFIG, layers }, decision_head });
  const [two, other, three] = [run(2, 0), run(2, 1), run(3, 1)];
  const of = (part, from, to) => JSON.stringify(state.counterpart([part], from, to));
  const heads = { kind: "Ablation", heads: [[0, 1], [1, 0]] }; // prettier-ignore
  assert.strictEqual(of(heads, two, two), JSON.stringify([heads]));
  assert.strictEqual(of(heads, two, other), '[{"kind":"Ablation","heads":[[0,1],[1,1]]}]');
  assert.strictEqual(of(heads, two, three), '[{"kind":"Ablation","heads":[[0,1],[2,1]]}]');
  const mean = { kind: "MeanAblation", mlps: [1, 2], names: ["blocks.2.mlp.skip"], positions: [7] };
  const matched = '[{"kind":"MeanAblation","mlps":[1],"names":["blocks.1.mlp.skip"],"positions":[7]}]';
  assert.strictEqual(of(mean, three, two), matched);
  const patch = { kind: "Patch", heads: [[1, 0]], source: [4, 5] }; // prettier-ignore
  assert.strictEqual(of(patch, two, other), '[{"kind":"Patch","heads":[[1,1]],"source":[4,5]}]');
  assert.strictEqual(of({ kind: "Ablation", neurons: [[1, 5]] }, two, other), "[]");
});

test("coordinates are read as they are written", () => {
  const { state: read, problems } = state.parse("#line=hundreds:-0.25", INITIAL, BOUNDS);
  assert.deepStrictEqual([JSON.stringify(read.line), problems.length], ['{"hundreds":-0.25}', 0]);
  assert.strictEqual(state.format({ line: read.line }), "#line=hundreds:-0.25");
  assert.strictEqual(state.format({ line: {} }), "#");
  const { problems: none } = state.parse("#line=hundreds:1", INITIAL, { ...BOUNDS, lines: [] });
  assert.match(none[0].text, /No line was measured in models of one layer/);
});
