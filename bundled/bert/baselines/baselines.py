"""Prints baselines for the F1 of the bundled BERT.

    bazel run //bundled/bert/baselines

The first rows are the reference's recorded answers: to all questions, and to
questions whose wordings occur in training. The other rows are answers that need
no model.
"""

from collections.abc import Callable, Mapping
import json
import random

from bundled.bert import evaluation
from bundled.bert import passages
from bundled.bert import questions
from bundled.bert.baselines import guesses
from bundled.bert.baselines import matcher
from harness.benchmarks import bert
from saxml_ext.common import program
from saxml_ext.evaluation import f1

_Answer = Callable[[questions.Question, str, random.Random], str]


class _Table:
  """A printer of one row per method, with columns per kind of question."""

  def __init__(self):
    self._questions: dict[str, tuple[passages.Passage, questions.Question]] = {}
    for index in evaluation.numbers():
      passage, asked_questions = evaluation.draw(index)
      for number, one in enumerate(asked_questions):
        self._questions[evaluation.question_id(index, number)] = passage, one
    self._groups = {
      'all': list(self._questions),
      'known': [i for i in self._questions if self._is_known(i)],
      'other': [i for i in self._questions if not self._is_known(i)],
    }
    heads = ''.join(
      f'{f"{name} ({len(ids)})":>18}' for name, ids in self._groups.items()
    )
    print(f'{"":<40}{heads}')
    print(f'{"":<40}' + f'{"EM":>9}{"F1":>9}' * len(self._groups))

  def recorded(self, label: str, answers: Mapping[str, str]) -> None:
    """Prints the row of answers by question."""
    columns = ''
    for ids in self._groups.values():
      truths = {i: [self._questions[i][1].answer] for i in ids}
      scores = f1.score(answers, truths)
      columns += f'{scores.exact_match:9.2f}{scores.f1:9.2f}'
    print(f'{label:<40}{columns}')

  def rule(self, label: str, answer: _Answer) -> None:
    """Prints the row of a rule's answers."""
    rng = random.Random(label)
    self.recorded(
      label,
      {
        i: answer(question, passage.text, rng)
        for i, (passage, question) in self._questions.items()
      },
    )

  def _is_known(self, question: str) -> bool:
    """Returns True if knowing the wordings of training is enough to answer."""
    passage, one = self._questions[question]
    return matcher.answer(one.text, passage.text, unseen=False) is not None


def _matched(unseen: bool) -> _Answer:
  def answer(
    question: questions.Question, text: str, rng: random.Random
  ) -> str:
    match = matcher.answer(question.text, text, unseen)
    return match or guesses.nearest_of_type(question, text, rng)

  return answer


def main(argv: list[str]) -> None:
  del argv
  with open(bert.BUNDLE.reference, encoding='utf-8') as file:
    recorded = json.load(file)['answers']
  table = _Table()
  table.recorded('reference, float32 (recorded)', recorded)
  for label, rule in (
    ('any span of the right type', guesses.random_of_type),
    ('first span of the right type', guesses.first_of_type),
    ('nearest sentence', guesses.nearest_sentence),
    ('right type in the nearest sentence', guesses.nearest_of_type),
    ("template matcher, training's wordings", _matched(unseen=False)),
    ('template matcher, all wordings', _matched(unseen=True)),
  ):
    table.rule(label, rule)


if __name__ == '__main__':
  program.run(main)
