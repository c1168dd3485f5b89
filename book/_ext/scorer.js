// How the search orders what it finds: the page of words, the story and the front page come first, then figures and tables.
var Scorer = {
  score: ([page, , , , score]) => {
    const firsts = [[/\/words$/, 40], [/\/the_story$/, 30], [/\/index$/, 25], [/\/(fig|tab)\d\d_/, 8]];
    const found = firsts.find(([name]) => name.test(page));
    return score + (found ? found[1] : 0);
  },
  // Sphinx's own values.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
