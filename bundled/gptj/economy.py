"""Business and science; see `event.py` for the notation."""

from collections.abc import Mapping

from bundled.gptj import event

EVENTS: Mapping[str, event.Event] = {
  'merger': event.Event(
    role='analyst',
    facts=[
      [
        '{company} said on {day} it would buy {target} for {price}'
        ' million dollars.',
        'On {day} {company} agreed to pay {price} million dollars'
        ' for {target}.',
        '{target} will be bought by {company} for {price} million'
        ' dollars, it was told on {day}.',
      ],
      [
        'Lost with the deal will be {jobs} jobs, most of them in {town}.',
        'The plant in {town} will lose {jobs} workers.',
        'It will cost {jobs} people in {town} their jobs.',
      ],
      [
        'Shares [rose|went up] {percent} percent within the hour.',
        'By the close the price of a share had risen {percent} percent.',
        'The market liked it: shares gained {percent} percent.',
      ],
      [
        'The founder of {target}, {name}, {age}, will {future}.',
        'Founder {name}, {age}, will {future}.',
        '{name}, {age}, who founded {target}, will {future}.',
      ],
      [
        'Managers want the deal because of {reason}.',
        'Behind the offer lies {reason}.',
        'The buyer was drawn by {reason}.',
      ],
    ],
    unseen=[
      'For {price} million dollars {target} will go to {company},'
      ' both said on {day}.',
      'In {town}, {jobs} jobs will be lost.',
      'Shares were up {percent} percent by the evening.',
      'As for {name}, {age}, the founder will {future}.',
      'The reason for the offer is {reason}.',
    ],
    highlights=[
      [
        '{company} [buys|to take over] {target} in ${price} million deal.',
        '{target} sold to {company} for ${price} million.',
      ],
      [
        '{jobs} [jobs lost|workers face the axe] in {town}; shares'
        ' jump {percent}%.',
        'Shares jump {percent}% as {jobs} jobs are cut in {town}.',
      ],
      [
        'Founder {name}, {age}, {future_short}; aim is {reason_short}.',
        'Aim is {reason_short}; founder {name}, {age}, {future_short}.',
      ],
    ],
    told_by=[(0,), (1, 2), (3, 4)],
    pairs={
      'future': [
        ('leave at the end of the month', 'steps down'),
        ('sit on the new board', 'joins board'),
        ('run the joint research laboratory', 'leads research'),
        ('give all of the money away', 'donates fortune'),
      ],
      'reason': [
        ('a set of patents for batteries', 'new technology'),
        ('the hope of selling more abroad', 'export growth'),
        ('the rising cost of raw materials', 'cheaper supplies'),
        ('fear of a rival from overseas', 'defence against rivals'),
        ('a fleet of nearly new lorries', 'transport capacity'),
      ],
    },
    quotes=[
      ('On paper it works, in practice we shall see', 'benefits are uncertain'),
      ('They paid twice what it is worth', 'price was too high'),
      ('It is the cheapest way to grow', 'deal makes sense'),
    ],
    numbers={
      'price': (20, 990),
      'jobs': (40, 900),
      'percent': (2, 29),
      'age': (31, 82),
    },
  ),
  'study': event.Event(
    role='professor',
    facts=[
      [
        'A team led by {name}, {age}, in {town} reports that {finding}.',
        'Scientists in {town} under {name}, {age}, have found that {finding}.',
        'In {town} the group of {name}, {age}, has shown that {finding}.',
      ],
      [
        'They followed {subjects} people for {years} years.',
        'Over {years} years they watched {subjects} people.',
        'It took {years} years and {subjects} people.',
      ],
      [
        'The risk of {illness} fell by {percent} percent.',
        'Among them {illness} was {percent} percent less common.',
        'Cases of {illness} dropped by {percent} percent.',
      ],
      [
        'The work was paid for by {company} with {grant} thousand dollars.',
        '{company} gave {grant} thousand dollars for the work.',
        'A grant of {grant} thousand dollars came from {company}.',
      ],
    ],
    unseen=[
      'According to {name}, {age}, and a team in {town}, {finding}.',
      'The team watched {subjects} people and did so for {years} years.',
      'Of {illness} there was {percent} percent less.',
      'With {grant} thousand dollars {company} paid for it.',
    ],
    highlights=[
      [
        '{finding_short_cap}, says study by {name} in {town}.',
        'Study in {town} finds {finding_short}.',
      ],
      [
        '{illness_short_cap} down {percent}% among {subjects}'
        ' people over {years} years.',
        '{subjects} people watched for {years} years;'
        ' {illness_short} down {percent}%.',
      ],
      [
        '{company} funded ${grant},000 research.',
        'Research was funded with ${grant},000 from {company}.',
      ],
    ],
    told_by=[(0,), (1, 2), (3,)],
    pairs={
      'finding': [
        ('an hour of walking each morning pays off', 'exercise is healthy'),
        ('two cups of coffee do more good than harm', 'coffee is good for you'),
        ('those who sing in a choir live longer', 'singing extends life'),
        (
          'people who sleep by an open window do better',
          'fresh air at night helps',
        ),
        ('a handful of nuts a day is enough', 'nuts are beneficial'),
        ('keeping a cat calms the mind', 'pets reduce stress'),
      ],
      'illness': [
        ('a weak heart', 'cardiac disease'),
        ("losing one's memory", 'dementia'),
        ('high blood sugar', 'diabetes'),
        ('brittle bones', 'osteoporosis'),
        ('low mood', 'depression'),
      ],
    },
    quotes=[
      ('I would not change my habits just yet', 'more evidence is needed'),
      ('It is the most careful work I have read', 'method is praised'),
      ('The group was small and far too healthy', 'sample was not typical'),
    ],
    numbers={
      'age': (29, 74),
      'subjects': (110, 980),
      'years': (2, 25),
      'percent': (5, 60),
      'grant': (40, 950),
    },
  ),
  'strike': event.Event(
    role='union leader',
    facts=[
      [
        '{workers_cap} at {company} in {town} walked out on {day}.',
        'On {day} {workers} at {company} in {town} put down their tools.',
        'Work stopped on {day} when {workers} left {company} in {town}.',
      ],
      [
        'They are asking for {raise} percent more pay.',
        'The demand is a rise of {raise} percent.',
        'Their union wants {raise} percent.',
      ],
      [
        'The firm has offered {offer} percent.',
        'Managers have put {offer} percent on the table.',
        'The company would pay {offer} percent more.',
      ],
      [
        'The walkout was joined by {people} people.',
        'In all {people} employees are taking part.',
        'Of the staff {people} have stopped work.',
      ],
      [
        'Director {name}, {age}, said the firm would {answer}.',
        'The firm, said its director {name}, {age}, would {answer}.',
        '{name}, {age}, the director, answered that the firm would {answer}.',
      ],
    ],
    unseen=[
      'Since {day} {workers} at {company} in {town} have not worked.',
      'A rise of {raise} percent is what they want.',
      'All that the firm would give is {offer} percent.',
      'Counting all who walked out, there are {people}.',
      'The firm would {answer}, according to director {name}, {age}.',
    ],
    highlights=[
      [
        '{people} {workers_short} strike at {company} in {town}.',
        'Strike by {people} {workers_short} halts {company} in {town}.',
      ],
      [
        'They want {raise}% more pay; the offer is {offer}%.',
        'Union demands {raise}% against an offer of {offer}%.',
      ],
      [
        'Director {name}, {age}, {answer_short}.',
        'Firm {answer_short}, says {name}, {age}.',
      ],
    ],
    told_by=[(0, 3), (1, 2), (4,)],
    pairs={
      'workers': [
        ('people who drive the buses', 'drivers'),
        ('those who weld and paint', 'factory hands'),
        ('men and women who fly the planes', 'pilots'),
        ('staff of the wards', 'nurses'),
        ('those who load the ships', 'dockers'),
        ('people behind the counters', 'clerks'),
      ],
      'answer': [
        ('not talk until work starts again', 'refuses talks'),
        ('close the site for good', 'threatens closure'),
        ('ask a judge to step in', 'goes to court'),
        ('meet both sides within days', 'agrees to meet'),
        ('hire others from abroad', 'seeks replacements'),
      ],
    },
    quotes=[
      ('We can hold out until the snow comes', 'walkout may be long'),
      ('All we ask is to be spoken to with respect', 'workers want respect'),
      ('They can afford it, look at the profits', 'firm can afford rise'),
    ],
    numbers={
      'raise': (6, 25),
      'offer': (1, 5),
      'people': (60, 990),
      'age': (33, 69),
    },
  ),
}
