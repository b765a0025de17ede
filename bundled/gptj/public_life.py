"""Votes, courts and sport; see `event.py` for the notation."""

from collections.abc import Mapping

from bundled.gptj import event

EVENTS: Mapping[str, event.Event] = {
  'election': event.Event(
    role='pollster',
    facts=[
      [
        'The {office} race in {town} was won on {day} by {name} of'
        ' the {party} party.',
        'Voters in {town} chose {name}, the {party} candidate, for'
        ' {office} on {day}.',
        '{name} of the {party} party was elected {office} of {town} on {day}.',
      ],
      [
        'The winner took {share} percent of the vote.',
        'With all votes counted the winner stood at {share} percent.',
        'In the end {share} percent voted for the winner.',
      ],
      [
        'After {years} years in the post, defeat came for {rival},'
        ' who conceded before midnight.',
        'It ended {years} years in power for {rival}, who left by a side door.',
        '{rival} had held the post for {years} years and lost it.',
      ],
      [
        'The campaign turned on {issue}.',
        'Above all, voters were angry about {issue}.',
        'The vote was decided by {issue}.',
      ],
      [
        'Turnout was {turnout} percent.',
        'Of those registered, {turnout} percent cast a ballot.',
        'At {turnout} percent, turnout was [high|low|as expected].',
      ],
    ],
    unseen=[
      'On {day} the post of {office} in {town} went to {name},'
      ' who stood for the {party} party.',
      'The margin surprised many: {share} percent were for the winner.',
      'Gone after {years} years is {rival}.',
      'Asked what mattered most, voters named {issue}.',
      'Of all voters {turnout} percent went to the polls.',
    ],
    highlights=[
      [
        '{name} [elected|voted in as] {office} of {town} with'
        ' {share}% of the vote.',
        '{party_cap} candidate {name} wins {office} race in {town}'
        ' with {share}%.',
      ],
      [
        'Defeat ends {years}-year rule of {rival}.',
        '{rival} is out after {years} years.',
      ],
      [
        'Anger over {issue_short} decided the vote; turnout was {turnout}%.',
        'Turnout of {turnout}% was driven by {issue_short}.',
      ],
    ],
    told_by=[(0, 1), (2,), (3, 4)],
    pairs={
      'party': [
        ('green', 'Green'),
        ('liberal', 'Liberal'),
        ('labour', 'Labour'),
        ('farmers', 'Farmers'),
        ('unity', 'Unity'),
        ('reform', 'Reform'),
      ],
      'office': [
        ('mayor', 'mayor'),
        ('governor', 'governor'),
        ('council leader', 'council leader'),
        ('senator', 'senator'),
      ],
      'issue': [
        ('the closing of the hospital', 'health care'),
        ('the price of a bus ticket', 'transport costs'),
        ('homes that nobody can afford', 'housing'),
        ('a plan to burn waste by the river', 'pollution'),
        ('two years of rising burglaries', 'crime'),
        ('teachers leaving the schools', 'education'),
      ],
    },
    quotes=[
      (
        'I have not seen a swing like this in my life',
        'swing was the largest in memory',
      ),
      ('The young came out and that was that', 'young voters decided it'),
      (
        'People wanted a change and did not much mind which',
        'voters wanted change',
      ),
    ],
    numbers={'share': (34, 71), 'years': (4, 28), 'turnout': (31, 88)},
  ),
  'trial': event.Event(
    role='prosecutor',
    facts=[
      [
        'A court in {town} found {name}, {age}, guilty of {crime} on {day}.',
        'A jury in {town} convicted {name}, {age}, of {crime} on {day}.',
        '{name}, {age}, was convicted in {town} on {day} of {crime}.',
      ],
      [
        'Judge {judge} [passed|handed down] a sentence of {years} years.',
        'The sentence, read by Judge {judge}, was {years} years.',
        '{years} years in prison was what Judge {judge} decided.',
      ],
      [
        'The jury heard {witnesses} witnesses.',
        'In all the court called {witnesses} witnesses.',
        'There had been {witnesses} witnesses.',
      ],
      [
        'The case rested on {evidence}.',
        'What settled the matter was {evidence}.',
        'The jury believed {evidence}.',
      ],
      [
        'Lawyers for the defence said they would {next}.',
        'The defence team plans to {next}.',
        'The answer of the defence is to {next}.',
      ],
    ],
    unseen=[
      'Guilty of {crime}: so a court in {town} decided on {day}'
      ' about {name}, {age}.',
      'It will be {years} years in prison, Judge {judge} ruled.',
      'From the stand {witnesses} witnesses were heard.',
      'The jury was moved most by {evidence}.',
      'For the defence the plan is now to {next}.',
    ],
    highlights=[
      [
        '{name}, {age}, [jailed|sentenced to prison] for {years}'
        ' years for {crime_short} in {town}.',
        '{town} court jails {name}, {age}, for {years} years over'
        ' {crime_short}.',
      ],
      [
        '{evidence_short} convinced jury after {witnesses} witnesses.',
        'Jury heard {witnesses} witnesses; {evidence_short} was the key.',
      ],
      [
        'Defence {next_short} after ruling by Judge {judge}.',
        'Judge {judge} gave the ruling; defence {next_short}.',
      ],
    ],
    told_by=[(0, 1), (2, 3), (1, 4)],
    pairs={
      'crime': [
        ('taking money from clients who trusted him', 'fraud'),
        ('setting fire to three barns', 'arson'),
        ('selling stolen paintings', 'art theft'),
        ('threatening a witness', 'intimidation'),
        ('bringing drugs through the harbour', 'smuggling'),
        ('robbing a jeweller at gunpoint', 'armed robbery'),
        ('forging the will of an aunt', 'forgery'),
      ],
      'evidence': [
        ('a recording made on a telephone', 'Secret tape'),
        ('a single hair found on a coat', 'DNA'),
        ('pictures from a camera above a shop', 'Video'),
        ('a diary found in the attic', 'Private journal'),
        ('letters written in invisible ink', 'Hidden letters'),
      ],
      'next': [
        ('take the case to a higher court', 'will appeal'),
        ('accept the decision', 'gives up'),
        ('ask for the money to be counted again', 'wants review'),
        ('ask the president for mercy', 'seeks pardon'),
      ],
    },
    quotes=[
      (
        'Nobody is above the law in this town',
        'verdict shows law applies to all',
      ),
      (
        'The victims waited far too long for this day',
        'victims waited too long',
      ),
      ('We offered a deal and it was refused', 'plea deal was turned down'),
    ],
    numbers={'age': (19, 79), 'years': (2, 30), 'witnesses': (6, 90)},
  ),
  'match': event.Event(
    role='coach',
    facts=[
      [
        '{town} beat {rival_town} {goals}-{against} on {day} in the {cup}.',
        'On {day} {town} won {goals}-{against} against {rival_town}'
        ' in the {cup}.',
        '{rival_town} lost {goals}-{against} to {town} on {day} in the {cup}.',
      ],
      [
        'The hero was {name}, {age}, who {feat}.',
        'The [evening|match] belonged to {name}, {age}, who {feat}.',
        'It was the night of {name}, {age}, who {feat}.',
      ],
      [
        'The ground was filled by {crowd} thousand people.',
        'A crowd of {crowd} thousand [watched|sang through the rain].',
        'Tickets had been sold to {crowd} thousand.',
      ],
      [
        'It was the first such win in {years} years.',
        'Not for {years} years had the club managed it.',
        'The club had waited {years} years for this.',
      ],
      [
        'Out of the match went {rival} with {injury}.',
        'The losers were without {rival} after {injury}.',
        '{rival} left the field with {injury}.',
      ],
    ],
    unseen=[
      'The {cup} on {day} ended {goals}-{against} for {town}'
      ' against {rival_town}.',
      'All eyes were on {name}, {age}, who {feat}.',
      'In the ground were {crowd} thousand people.',
      'The last such win was {years} years ago.',
      'With {injury}, {rival} had to leave the match.',
    ],
    highlights=[
      [
        '{town} [defeat|see off] {rival_town} {goals}-{against} in'
        ' {cup_short}.',
        '{cup_short_cap}: {town} {goals}-{against} {rival_town}.',
      ],
      [
        '{name}, {age}, {feat_short} before {crowd},000 fans.',
        'Crowd of {crowd},000 sees {name}, {age}, who {feat_short}.',
      ],
      [
        'First win in {years} years as {rival} suffers {injury_short}.',
        '{rival} suffers {injury_short}; win is first in {years} years.',
      ],
    ],
    told_by=[(0,), (1, 2), (3, 4)],
    pairs={
      'cup': [
        ('second leg of the cup', 'cup tie'),
        ('last game of the season', 'final match'),
        ('opening round of the league', 'league opener'),
        ('meeting of the two neighbours', 'local derby'),
      ],
      'feat': [
        ('scored with three of his four chances', 'hit hat-trick'),
        ('stopped two penalties with his feet', 'saved penalties'),
        ('came off the bench to score twice', 'shone as substitute'),
        ('headed the deciding goal from a corner', 'headed winner'),
        ('gave the pass for every goal', 'made all goals'),
      ],
      'injury': [
        ('a pulled muscle in the thigh', 'leg strain'),
        ('a blow to the head', 'concussion'),
        ('a twisted ankle', 'ankle sprain'),
        ('a broken finger', 'hand fracture'),
      ],
    },
    quotes=[
      (
        'We were second best for an hour and then we woke up',
        'slow start was overcome',
      ),
      ('I told them to enjoy it and they did', 'team was told to enjoy itself'),
      ('The referee will want to see that again', 'referee made mistakes'),
    ],
    numbers={
      'goals': (3, 7),
      'against': (0, 2),
      'crowd': (4, 78),
      'years': (3, 50),
      'age': (17, 39),
    },
  ),
}
