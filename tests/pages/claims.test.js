// The functions of the claims page that need no browser. Run by tests/pages/test_claims_page.py, or by `node --test tests/pages`.
"use strict";
const test = require("node:test");
const assert = require("node:assert");
const { parse, format, matches, compare, counted } = require("../../book/_static/claims.js");

const row = (more = {}) => ({
  section: "tab1",
  page: "tab01_decision_head_and_final_mlp",
  verdicts: { author: "reproduced", ours: "compatible" },
  text: "Without the final MLP: C@1, accuracy at position 7 tab1/final_mlp/C@1/accuracy/pos7",
  keys: { order: 3, paper: 0.14, author: 5, ours: 2 },
  ...more,
});

test("an address is read", () => {
  assert.deepEqual(parse("#verdict=differs&section=tab1").state, { verdict: "differs", section: "tab1" });
  assert.deepEqual(parse("#verdict=not+run&q=final%20MLP").state, { verdict: "not run", q: "final MLP" });
});

test("an address that names a row, a heading or nothing asks for nothing", () => {
  for (const address of ["", "#", "#what-differs", "#tab1/final_mlp/C@1/accuracy/pos7"]) assert.deepEqual(parse(address), { state: {}, ignored: [] });
});

test("what is unknown in an address is left out, with a line about each", () => {
  const choices = { verdict: ["differs"], section: ["tab1"], sort: ["order"], order: ["descending"], source: ["ours"] };
  const wrong = ["colour=red", "__proto__=x", "=", "verdict=zzz", "section=zzz", "source=zzz", "sort=zzz", "order=zzz"];
  for (const part of [...wrong, `section=${"x".repeat(9999)}`]) {
    const { state, ignored } = parse(`#verdict=&section=tab1&q=zzz&${part}`, choices);
    assert.deepEqual(state, { section: "tab1", q: "zzz" });
    assert.equal(ignored.length, 1, part);
    assert.match(ignored[0], /^The address has .{1,80}: expected .*\w\.$/);
  }
});

test("a state and its address say the same", () => {
  const state = { verdict: "not run", source: "ours", section: "tab5", q: "C@1 & head+", sort: "author", order: "descending" };
  assert.deepEqual(parse(`#${format(state)}`).state, state);
  assert.equal(format({}), "");
  assert.equal(format({ section: "tab1", verdict: "differs", q: "", sort: undefined }), "verdict=differs&section=tab1");
});

test("a row is filtered by its verdict, from either source or from one", () => {
  assert.ok(matches(row(), {}));
  assert.ok(matches(row(), { verdict: "compatible" }));
  assert.ok(matches(row(), { verdict: "compatible", source: "ours" }));
  assert.ok(!matches(row(), { verdict: "compatible", source: "author" }));
  assert.ok(!matches(row(), { verdict: "differs" }));
  assert.ok(matches(row(), { source: "author" }));
});

test("a row is filtered by its section, its page and by words, all of which it has to have", () => {
  assert.ok(matches(row(), { section: "tab1" }));
  assert.ok(!matches(row(), { section: "tab" }));
  assert.ok(matches(row(), { page: "tab01_decision_head_and_final_mlp" }));
  assert.ok(!matches(row(), { page: "tab01" }));
  assert.ok(matches(row(), { q: "mlp c@1" }));
  assert.ok(matches(row(), { q: "  FINAL  " }));
  assert.ok(matches(row({ text: "the author’s runs" }), { q: "author's" }));
  assert.ok(!matches(row(), { q: "mlp c@2" }));
  assert.ok(!matches(row(), { q: "(.*" }));
  assert.ok(!matches(row(), { section: "tab1", verdict: "compatible", source: "author", q: "mlp" }));
});

test("rows are sorted by a column, both ways, equal ones in the ledger's order", () => {
  const rows = [0.5, 0.1, 0.5, 0.3].map((paper, order) => row({ keys: { order, paper } }));
  const by = (descending) => [...rows].sort((a, b) => compare(a, b, "paper", descending)).map(({ keys }) => keys.order);
  assert.deepEqual(by(false), [1, 3, 0, 2]);
  assert.deepEqual(by(true), [0, 2, 3, 1]);
});

test("rows without a number come last, both ways", () => {
  const rows = [null, 0.5, undefined, 0, -1].map((paper, order) => row({ keys: { order, paper } }));
  const by = (descending) => [...rows].sort((a, b) => compare(a, b, "paper", descending)).map(({ keys }) => keys.order);
  assert.deepEqual(by(false), [4, 3, 1, 0, 2]);
  assert.deepEqual(by(true), [1, 3, 4, 0, 2]);
});

test("a phone says where the rows are that it does not show", () => {
  assert.equal(counted(152, 152, 337, false), "152 of 337 rows");
  assert.match(counted(0, 337, 337, true), /^337 of 337 rows, folded/);
  assert.match(counted(60, 152, 337, false), /^152 of 337 rows; the first 60 /);
});
