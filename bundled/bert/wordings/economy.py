"""Questions about business and science."""

from bundled.bert.wordings import wording

_ask = wording.Wording

WORDINGS: wording.Wordings = {
  'merger': (
    _ask(
      '{company}',
      [
        'Which [company|firm] is the buyer?',
        'Who is [buying|taking over] {target}?',
        'Who pays for the takeover?',
      ],
      ['What is the name of the buyer?'],
    ),
    _ask(
      '{target}',
      [
        'Which [company|firm] is being sold?',
        'What is {company} [buying|taking over]?',
        'Who will have a new owner?',
      ],
      ['What is the name of the firm being sold?'],
    ),
    _ask(
      '{price} million dollars',
      [
        'How much [money|] is paid for the takeover?',
        'What does {company} pay?',
        'How expensive is {target}?',
      ],
      ['How much money does {company} pay?'],
    ),
    _ask(
      '{day}',
      [
        'When was the takeover announced?',
        'On which day did the firms announce the takeover?',
        'What day did {company} announce it?',
      ],
      ['Which day of the week was the takeover announced?'],
    ),
    _ask(
      '{jobs}',
      [
        'How many [employees|people] will be dismissed after the takeover?',
        'How many posts will be cut?',
        'How many become unemployed by the takeover?',
      ],
      ['What number of employees will be dismissed?'],
    ),
    _ask(
      '{town}',
      [
        'Where will people be dismissed?',
        'Which town is hit by the takeover?',
        'In which town does the takeover cost most posts?',
      ],
      ['What is the name of the town hit by the takeover?'],
    ),
    _ask(
      '{percent} percent',
      [
        'How much did the stock [climb|gain in value]?',
        'How did investors react to the takeover?',
        'How much more is the stock worth?',
      ],
      ['How much did investors gain?'],
    ),
    _ask(
      '{name}',
      [
        'Who [started|built up] the firm being sold?',
        'Who created {target}?',
        'Whose plans after the takeover are known?',
      ],
      ['What is the name of the person who created {target}?'],
    ),
    _ask(
      '{future}',
      [
        'What are the plans of {name}?',
        'What does {name} do after the takeover?',
        'What comes next for {name}?',
      ],
      ['What plans does {name} have after the takeover?'],
    ),
    _ask(
      '{reason}',
      [
        'Why does {company} want {target}?',
        'What makes {target} attractive?',
        'What is the motive of the takeover?',
      ],
      ['What motive does {company} have?'],
    ),
  ),
  'study': (
    _ask(
      '{name}',
      [
        'Who [headed|directed] the [study|research]?',
        'Which scientist made the discovery?',
        'Who is the main author of the study?',
      ],
      ['What is the name of the main scientist?'],
    ),
    _ask(
      '{town}',
      [
        'Where was the research done?',
        'In which town do the researchers work?',
        'Which town is home of the study?',
      ],
      ['What is the name of the town of the researchers?'],
    ),
    _ask(
      '{finding}',
      [
        'What [is the result of|did] the research [show|]?',
        'What was discovered by the researchers?',
        'What is the discovery of {name}?',
      ],
      ['What result did the researchers have?'],
    ),
    _ask(
      '{subjects} people',
      [
        'How many [volunteers|participants] did the study have?',
        'How many took part in the research?',
        'Who was observed in the study?',
      ],
      ['What number of volunteers took part in the study?'],
    ),
    _ask(
      '{years} years',
      [
        'How long [was|did] the [study|research] [|go on]?',
        'For how long did the researchers observe?',
        'What was the duration of the study?',
      ],
      ['How much time did the research need?'],
    ),
    _ask(
      '{illness}',
      [
        'Which disease became rarer?',
        'Against which disease does it help?',
        'What did fewer participants suffer from?',
      ],
      ['Which disease did fewer volunteers suffer from?'],
    ),
    _ask(
      '{percent} percent',
      [
        'How much rarer was the disease?',
        'By how much was the disease reduced?',
        'How strong is the effect in the study?',
      ],
      ['How much was {illness} reduced in the study?'],
    ),
    _ask(
      '{company}',
      [
        'Who [funded|financed] the [research|study]?',
        'Which [company|firm] supported the study?',
        'Which sponsor did the researchers have?',
      ],
      ['What is the name of the sponsor?'],
    ),
    _ask(
      '{grant} thousand dollars',
      [
        'How much [money|] did the sponsor spend?',
        'How expensive was the study?',
        'How much did the researchers receive?',
      ],
      ['How much money did the researchers receive?'],
    ),
  ),
  'strike': (
    _ask(
      '{workers}',
      [
        'Who is on strike?',
        'Which group of employees went on strike?',
        'Who [started|began] the strike?',
      ],
      ['Which employees began a strike?'],
    ),
    _ask(
      '{company}',
      [
        'Which employer is hit by the strike?',
        'At which [company|firm] is the strike?',
        'Where do the strikers [usually|] work?',
      ],
      ['What is the name of the employer?'],
    ),
    _ask(
      '{town}',
      [
        'In which town is the strike?',
        'Which town sees a strike?',
        'Which town is the scene of the strike?',
      ],
      ['What is the name of the town of the strike?'],
    ),
    _ask(
      '{day}',
      [
        'When did the strike [begin|start]?',
        'On which day did the strike begin?',
        'Since when are they on strike?',
      ],
      ['Which day of the week did the strike start?'],
    ),
    _ask(
      '{raise} percent',
      [
        'How much do the strikers demand?',
        'What is the goal of the strike?',
        'How much higher should wages be?',
      ],
      ['How much is the goal of the strikers?'],
    ),
    _ask(
      '{offer} percent',
      [
        'How much would the employer give [the strikers|]?',
        'How much does the employer propose?',
        'What is the proposal of the employer?',
      ],
      ['How much is the proposal to the strikers?'],
    ),
    _ask(
      '{people}',
      [
        'How many [strikers|people] are there on strike?',
        'How large is the strike?',
        'How many went on strike?',
      ],
      ['What is the number of strikers?'],
    ),
    _ask(
      '{name}',
      [
        'Who speaks for the employer?',
        'Who [leads|manages] the employer?',
        'Who is the boss of the strikers?',
      ],
      ['What is the name of the boss?'],
    ),
    _ask(
      '{answer}',
      [
        'What does {name} want to do about the strike?',
        'How does the employer react to the strike?',
        'What is the reaction of {name}?',
      ],
      ['What reaction to the strike does the employer have?'],
    ),
  ),
}
