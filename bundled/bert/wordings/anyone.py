"""Questions that fit every kind of event: about ages and what was said."""

from bundled.bert.wordings import wording

AGE = wording.Wording(
  '{age}',
  ['How old is {name}?', 'What is the age of {name}?', '{name} is how old?'],
  ['How many years old is {name}?'],
)

SPEAKER = wording.Wording(
  '{speaker}',
  [
    'Who [commented|spoke] as {role}?',
    'Which {role} was quoted?',
    'What is the {role} called?',
  ],
  ['What is the name of the {role}?'],
)

QUOTE = wording.Wording(
  '{quote}',
  [
    'What was the comment of {speaker}?',
    'What did {speaker} tell the press?',
    'How did the {role} comment?',
  ],
  ['What did the {role} tell the press?'],
)
