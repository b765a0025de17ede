"""Builds the questions of the evaluation in the schema of SQuAD v1.1."""

from typing import Any

from bundled.bert import passages
from bundled.bert import questions

ARTICLES = 150
_PARAGRAPHS = 2  # The number of paragraphs of an article.
_QUESTIONS = 4  # The maximum number of questions of a paragraph.
_SPLIT = 'eval'


def numbers(articles: int = ARTICLES) -> range:
  """Returns the numbers of the passages in this many articles."""
  return range(articles * _PARAGRAPHS)


def draw(index: int) -> tuple[passages.Passage, list[questions.Question]]:
  """Returns passage number `index` of the evaluation, with its questions."""
  passage = passages.write_passage(_SPLIT, index)
  return passage, questions.ask(_SPLIT, index, passage, _QUESTIONS)


def question_id(index: int, number: int) -> str:
  """Returns the id of question `number` about passage `index`."""
  return f'{index:03d}-{number}'


def squad(articles: int = ARTICLES) -> dict[str, Any]:
  """Returns the data set as the JSON value of SQuAD v1.1."""
  data: list[dict[str, Any]] = []
  for index in numbers(articles):
    passage, asked_questions = draw(index)
    if index % _PARAGRAPHS == 0:
      first = passage.events[0]
      title = f'{first.kind.capitalize()} in {first.slots["town"]}'
      data.append({'title': title, 'paragraphs': []})
    qas = [
      {
        'id': question_id(index, number),
        'question': one.text,
        'answers': [{'text': one.answer, 'answer_start': one.start}],
      }
      for number, one in enumerate(asked_questions)
    ]
    data[-1]['paragraphs'].append({'context': passage.text, 'qas': qas})
  return {'version': '1.1', 'data': data}
