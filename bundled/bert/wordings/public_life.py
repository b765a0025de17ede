"""Questions about votes, courts and sport."""

from bundled.bert.wordings import wording

_ask = wording.Wording

WORDINGS: wording.Wordings = {
  'election': (
    _ask(
      '{name}',
      [
        'Who won the [election|vote]?',
        'Who is the new {office}?',
        'Which politician was successful in {town}?',
      ],
      ['What is the name of the new {office}?'],
    ),
    _ask(
      '{town}',
      [
        'Where was the election [held|]?',
        'Which town [elected|has] a new {office}?',
        'In which town did {name} win?',
      ],
      ['What is the name of the town that held the election?'],
    ),
    _ask(
      '{day}',
      [
        'When was the election [held|]?',
        'On which day did people vote?',
        'What day did {name} win?',
      ],
      ['Which day of the week was the election?'],
    ),
    _ask(
      '{party}',
      [
        'Which political group does {name} belong to?',
        'For whom did the new {office} stand?',
        'What is the political colour of the new {office}?',
      ],
      ['Which political group won the election?'],
    ),
    _ask(
      '{share} percent',
      [
        'How many [votes|ballots] were for {name}?',
        'What was the result of the new {office}?',
        'How large was the part of the votes for {name}?',
      ],
      ['What result did {name} have?'],
    ),
    _ask(
      '{rival}',
      [
        'Who [lost|was beaten in] the election?',
        'Who was {office} before?',
        'Whom did {name} [beat|replace]?',
      ],
      ['What is the name of the {office} before {name}?'],
    ),
    _ask(
      '{years} years',
      [
        'How long had {rival} governed?',
        'For how long was {rival} {office}?',
        'How long did the old {office} stay?',
      ],
      ['For how long had {rival} governed?'],
    ),
    _ask(
      '{issue}',
      [
        'What was the main [topic|subject] of the election?',
        'What did people complain about before the election?',
        'Which topic mattered to voters?',
      ],
      ['Which subject did people complain about?'],
    ),
    _ask(
      '{turnout} percent',
      [
        'How many [people|citizens] took part in the election?',
        'How large was participation?',
        'What part of the citizens voted?',
      ],
      ['How large was the part of citizens who voted?'],
    ),
  ),
  'trial': (
    _ask(
      '{name}',
      [
        'Who [was on trial|is the criminal]?',
        'Who must go to jail?',
        'Who [committed the crime|was sentenced]?',
      ],
      ['What is the name of the criminal?'],
    ),
    _ask(
      '{town}',
      [
        'Where was the trial [held|]?',
        'In which town did the trial take place?',
        'Which town held the trial?',
      ],
      ['What is the name of the town where the trial was?'],
    ),
    _ask(
      '{day}',
      [
        'When did the trial end?',
        'On which day was the verdict?',
        'What day was {name} sentenced?',
      ],
      ['Which day of the week did the trial end?'],
    ),
    _ask(
      '{crime}',
      [
        'What did {name} do?',
        'Which crime was committed?',
        'What was the trial about?',
      ],
      ['Which crime was the trial about?'],
    ),
    _ask(
      '{judge}',
      [
        'Who [sentenced {name}|led the trial]?',
        'Who was the judge [in the trial|]?',
        'Which judge sent {name} to jail?',
      ],
      ['What is the name of the judge?'],
    ),
    _ask(
      '{years} years',
      [
        'How long [is the jail term|must {name} go to jail]?',
        'For how long will {name} be locked up?',
        'How long will {name} stay in jail?',
      ],
      ['How much time must {name} stay in jail?'],
    ),
    _ask(
      '{witnesses}',
      [
        'How many people [gave evidence|testified]?',
        'How many testified at the trial?',
        'What was the number of people who testified?',
      ],
      ['What number of people gave evidence?'],
    ),
    _ask(
      '{evidence}',
      [
        'What [convinced|persuaded] the court?',
        'Which proof decided the trial?',
        'What was the [best|strongest] proof against {name}?',
      ],
      ['Which proof convinced the court?'],
    ),
    _ask(
      '{next}',
      [
        'What will the lawyers of {name} do?',
        'What happens after the trial?',
        'What do the lawyers want to do?',
      ],
      ['What will the lawyers do after the trial?'],
    ),
  ),
  'match': (
    _ask(
      '{town}',
      [
        'Who won the [game|match]?',
        'Which team won?',
        'Who was better than {rival_town}?',
      ],
      ['What is the name of the team that won?'],
    ),
    _ask(
      '{rival_town}',
      [
        'Who was beaten in the [game|match]?',
        'Which team was the loser?',
        'Whom did the team of {town} play?',
      ],
      ['What is the name of the team that was beaten?'],
    ),
    _ask(
      '{goals}-{against}',
      [
        'How did the [game|match] end?',
        'What was the [score|result] of the game?',
        'How many goals did each team have?',
      ],
      ['What score did the game have?'],
    ),
    _ask(
      '{day}',
      [
        'When was the [game|match] [played|]?',
        'On which day did the teams meet?',
        'What day was the game?',
      ],
      ['Which day of the week was the game?'],
    ),
    _ask(
      '{cup}',
      [
        'Which [game|contest] was it?',
        'What were the two teams playing in?',
        'What kind of game did {town} play?',
      ],
      ['What kind of contest did the teams play in?'],
    ),
    _ask(
      '{name}',
      [
        'Who was the best player?',
        'Which player decided the game?',
        'Who was the star of the match?',
      ],
      ['What is the name of the best player?'],
    ),
    _ask(
      '{feat}',
      [
        'What did {name} do in the game?',
        'How did {name} help the team?',
        'What made {name} the star?',
      ],
      ['What did the best player do?'],
    ),
    _ask(
      '{crowd} thousand',
      [
        'How many [fans|spectators] were there?',
        'How many saw the game?',
        'What was the number of spectators?',
      ],
      ['What number of fans saw the game?'],
    ),
    _ask(
      '{years} years',
      [
        'How long was it since the team won like this?',
        'For how long did the fans wait for such a victory?',
        'How long ago was the last such victory?',
      ],
      ['How much time is it since such a victory?'],
    ),
    _ask(
      '{rival}',
      [
        'Who was [hurt|injured] in the game?',
        'Which player could not go on?',
        'Which player had {injury}?',
      ],
      ['What is the name of the injured player?'],
    ),
    _ask(
      '{injury}',
      [
        'Why could {rival} not go on playing?',
        'How was {rival} [hurt|injured]?',
        'What is wrong with {rival}?',
      ],
      ['What is wrong with the injured player?'],
    ),
  ),
}
