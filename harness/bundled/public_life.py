"""Votes, courts, sport, business, science; see `event.py` for the notation."""

from collections.abc import Mapping

from harness.bundled import event

EVENTS: Mapping[str, event.Event] = {
    'election': event.Event(
        role='pollster',
        facts=[
            ['The {office} race in {town} was won on {day} by {name} of the'
             ' {party} party.',
             'Voters in {town} chose {name}, the {party} candidate, for'
             ' {office} on {day}.'],
            ['The winner took {share} percent of the vote.',
             'With all votes counted the winner stood at {share} percent.'],
            ['After {years} years in the post, defeat came for {rival}, who'
             ' conceded before midnight.',
             'It ended {years} years in power for {rival}, who left by a side'
             ' door.'],
            ['The campaign turned on {issue}.',
             'Above all, voters were angry about {issue}.'],
            ['Turnout was {turnout} percent.',
             'Of those registered, {turnout} percent cast a ballot.'],
        ],
        highlights=[
            ['{name} [elected|voted in as] {office} of {town} with {share}%'
             ' of the vote.',
             '{party_cap} candidate {name} wins {office} race in {town} with'
             ' {share}%.'],
            ['Defeat ends {years}-year rule of {rival}.',
             '{rival} is out after {years} years.'],
            ['Anger over {issue_short} decided the vote; turnout was'
             ' {turnout}%.',
             'Turnout of {turnout}% was driven by {issue_short}.'],
        ],
        pairs={
            'party': [('green', 'Green'), ('liberal', 'Liberal'),
                      ('labour', 'Labour'), ('farmers', 'Farmers'),
                      ('unity', 'Unity'), ('reform', 'Reform')],
            'office': [('mayor', 'mayor'), ('governor', 'governor'),
                       ('council leader', 'council leader'),
                       ('senator', 'senator')],
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
            ('I have not seen a swing like this in my life',
             'swing was the largest in memory'),
            ('The young came out and that was that',
             'young voters decided it'),
            ('People wanted a change and did not much mind which',
             'voters wanted change'),
        ],
        numbers={'share': (34, 71), 'years': (4, 28), 'turnout': (31, 88)},
    ),
    'trial': event.Event(
        role='prosecutor',
        facts=[
            ['A court in {town} found {name}, {age}, guilty of {crime} on'
             ' {day}.',
             'A jury in {town} convicted {name}, {age}, of {crime} on {day}.'],
            ['Judge {judge} [passed|handed down] a sentence of {years} years.',
             'The sentence, read by Judge {judge}, was {years} years.'],
            ['The jury heard {witnesses} witnesses.',
             'In all the court called {witnesses} witnesses.'],
            ['The case rested on {evidence}.',
             'What settled the matter was {evidence}.'],
            ['Lawyers for the defence said they would {next}.',
             'The defence team plans to {next}.'],
        ],
        highlights=[
            ['{name}, {age}, [jailed|sentenced to prison] for {years} years'
             ' for {crime_short} in {town}.',
             '{town} court jails {name}, {age}, for {years} years over'
             ' {crime_short}.'],
            ['{evidence_short} convinced jury after {witnesses} witnesses.',
             'Jury heard {witnesses} witnesses; {evidence_short} was the key.'],
            ['Defence {next_short} after ruling by Judge {judge}.',
             'Judge {judge} gave the ruling; defence {next_short}.'],
        ],
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
            ('Nobody is above the law in this town',
             'verdict shows law applies to all'),
            ('The victims waited far too long for this day',
             'victims waited too long'),
            ('We offered a deal and it was refused',
             'plea deal was turned down'),
        ],
        numbers={'age': (19, 79), 'years': (2, 30), 'witnesses': (6, 90)},
    ),
    'match': event.Event(
        role='coach',
        facts=[
            ['{town} beat {rival_town} {goals}-{against} on {day} in the'
             ' {cup}.',
             'On {day} {town} won {goals}-{against} against {rival_town} in'
             ' the {cup}.'],
            ['The hero was {name}, {age}, who {feat}.',
             'The [evening|match] belonged to {name}, {age}, who {feat}.'],
            ['The ground was filled by {crowd} thousand people.',
             'A crowd of {crowd} thousand [watched|sang through the rain].'],
            ['It was the first such win in {years} years.',
             'Not for {years} years had the club managed it.'],
            ['Out of the match went {rival} with {injury}.',
             'The losers were without {rival} after {injury}.'],
        ],
        highlights=[
            ['{town} [defeat|see off] {rival_town} {goals}-{against} in'
             ' {cup_short}.',
             '{cup_short_cap}: {town} {goals}-{against} {rival_town}.'],
            ['{name}, {age}, {feat_short} before {crowd},000 fans.',
             'Crowd of {crowd},000 sees {name}, {age}, who {feat_short}.'],
            ['First win in {years} years as {rival} suffers {injury_short}.',
             '{rival} suffers {injury_short}; win is first in {years} years.'],
        ],
        pairs={
            'cup': [('second leg of the cup', 'cup tie'),
                    ('last game of the season', 'final match'),
                    ('opening round of the league', 'league opener'),
                    ('meeting of the two neighbours', 'local derby')],
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
            ('We were second best for an hour and then we woke up',
             'slow start was overcome'),
            ('I told them to enjoy it and they did',
             'team was told to enjoy itself'),
            ('The referee will want to see that again',
             'referee made mistakes'),
        ],
        numbers={'goals': (3, 7), 'against': (0, 2), 'crowd': (4, 78),
                 'years': (3, 50), 'age': (17, 39)},
    ),
    'merger': event.Event(
        role='analyst',
        facts=[
            ['{company} said on {day} it would buy {target} for {price}'
             ' million dollars.',
             'On {day} {company} agreed to pay {price} million dollars for'
             ' {target}.'],
            ['Lost with the deal will be {jobs} jobs, most of them in {town}.',
             'The plant in {town} will lose {jobs} workers.'],
            ['Shares [rose|went up] {percent} percent within the hour.',
             'By the close the price of a share had risen {percent} percent.'],
            ['The founder of {target}, {name}, {age}, will {future}.',
             'Founder {name}, {age}, will {future}.'],
            ['Managers want the deal because of {reason}.',
             'Behind the offer lies {reason}.'],
        ],
        highlights=[
            ['{company} [buys|to take over] {target} in ${price} million'
             ' deal.',
             '{target} sold to {company} for ${price} million.'],
            ['{jobs} [jobs lost|workers face the axe] in {town}; shares jump'
             ' {percent}%.',
             'Shares jump {percent}% as {jobs} jobs are cut in {town}.'],
            ['Founder {name}, {age}, {future_short}; aim is {reason_short}.',
             'Aim is {reason_short}; founder {name}, {age}, {future_short}.'],
        ],
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
            ('On paper it works, in practice we shall see',
             'benefits are uncertain'),
            ('They paid twice what it is worth', 'price was too high'),
            ('It is the cheapest way to grow', 'deal makes sense'),
        ],
        numbers={'price': (20, 990), 'jobs': (40, 900), 'percent': (2, 29),
                 'age': (31, 82)},
    ),
    'study': event.Event(
        role='professor',
        facts=[
            ['A team led by {name}, {age}, in {town} reports that {finding}.',
             'Scientists in {town} under {name}, {age}, have found that'
             ' {finding}.'],
            ['They followed {subjects} people for {years} years.',
             'Over {years} years they watched {subjects} people.'],
            ['The risk of {illness} fell by {percent} percent.',
             'Among them {illness} was {percent} percent less common.'],
            ['The work was paid for by {company} with {grant} thousand'
             ' dollars.',
             '{company} gave {grant} thousand dollars for the work.'],
            ['It was printed on {day}.', 'The results came out on {day}.'],
        ],
        highlights=[
            ['{finding_short_cap}, says study by {name} in {town}.',
             'Study in {town} finds {finding_short}.'],
            ['{illness_short_cap} down {percent}% among {subjects} people'
             ' over {years} years.',
             '{subjects} people watched for {years} years;'
             ' {illness_short} down {percent}%.'],
            ['{company} funded ${grant},000 research.',
             'Research was funded with ${grant},000 from {company}.'],
        ],
        pairs={
            'finding': [
                ('an hour of walking each morning pays off',
                 'exercise is healthy'),
                ('two cups of coffee do more good than harm',
                 'coffee is good for you'),
                ('those who sing in a choir live longer',
                 'singing extends life'),
                ('people who sleep by an open window do better',
                 'fresh air at night helps'),
                ('a handful of nuts a day is enough', 'nuts are beneficial'),
                ('keeping a cat calms the mind', 'pets reduce stress'),
            ],
            'illness': [
                ('a weak heart', 'cardiac disease'),
                ('losing one\'s memory', 'dementia'),
                ('high blood sugar', 'diabetes'),
                ('brittle bones', 'osteoporosis'),
                ('low mood', 'depression'),
            ],
        },
        quotes=[
            ('I would not change my habits just yet',
             'more evidence is needed'),
            ('It is the most careful work I have read',
             'method is praised'),
            ('The group was small and far too healthy',
             'sample was not typical'),
        ],
        numbers={'age': (29, 74), 'subjects': (110, 980), 'years': (2, 25),
                 'percent': (5, 60), 'grant': (40, 950)},
    ),
    'strike': event.Event(
        role='union leader',
        facts=[
            ['{workers_cap} at {company} in {town} walked out on {day}.',
             'On {day} {workers} at {company} in {town} put down their'
             ' tools.'],
            ['They are asking for {raise} percent more pay.',
             'The demand is a rise of {raise} percent.'],
            ['The firm has offered {offer} percent.',
             'Managers have put {offer} percent on the table.'],
            ['The walkout was joined by {people} people.',
             'In all {people} employees are taking part.'],
            ['Director {name}, {age}, said the firm would {answer}.',
             'The firm, said its director {name}, {age}, would {answer}.'],
        ],
        highlights=[
            ['{people} {workers_short} strike at {company} in {town}.',
             'Strike by {people} {workers_short} halts {company} in {town}.'],
            ['They want {raise}% more pay; the offer is {offer}%.',
             'Union demands {raise}% against an offer of {offer}%.'],
            ['Director {name}, {age}, {answer_short}.',
             'Firm {answer_short}, says {name}, {age}.'],
        ],
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
            ('We can hold out until the snow comes',
             'walkout may be long'),
            ('All we ask is to be spoken to with respect',
             'workers want respect'),
            ('They can afford it, look at the profits',
             'firm can afford rise'),
        ],
        numbers={'raise': (6, 25), 'offer': (1, 5), 'people': (60, 990),
                 'age': (33, 69)},
    ),
}
