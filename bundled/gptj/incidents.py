"""Fires, storms, thefts and crashes; see `event.py` for the notation."""

from collections.abc import Mapping

from bundled.gptj import event

EVENTS: Mapping[str, event.Event] = {
  'fire': event.Event(
    role='fire chief',
    facts=[
      [
        'Flames broke out at {building} in {town} [late on|early on|on] {day}.',
        'On {day} a blaze swept through {building} in {town}.',
        '{building_cap} in {town} [caught fire|went up in flames] on {day}.',
        'Neighbours in {town} watched on {day} as {building} burned.',
      ],
      [
        'Hospitals took in {hurt} people with burns or smoke in their lungs.',
        'Doctors treated {hurt} people[|, most of them for smoke inhalation].',
        'The number of injured stood at {hurt}[| by evening].',
      ],
      [
        'It took {crews} crews and {hours} hours to put it out.',
        'Called out were {crews} crews, which worked for {hours} hours.',
        'The fire was out after {hours} hours, fought by {crews} crews.',
      ],
      [
        'Investigators [believe|think] the cause was {cause}.',
        'Early findings point to {cause}[| as the cause].',
        'The fire service puts it down to {cause}.',
      ],
      [
        'Out of the smoke came {name}, {age}, carrying {saved}.',
        'Witnesses saw {name}, aged {age}, go back inside for {saved}.',
        'Without fear {name}, {age}, ran in and saved {saved}.',
      ],
    ],
    unseen=[
      'Firefighters were called to {building} in {town} on {day}.',
      'By night {hurt} people lay in hospital beds.',
      'After {hours} hours the last of {crews} crews could go home.',
      'All signs so far lead to {cause}.',
      'With {saved} in tow, {name}, {age}, reached the street.',
    ],
    highlights=[
      [
        'Fire at {building_short} in {town} [injures|leaves'
        ' injured] {hurt} people.',
        '{hurt} hurt [as|when] fire destroys {building_short} in {town}.',
      ],
      [
        '{cause_short} is blamed; {crews} crews needed {hours} hours.',
        'Blaze took {hours} hours and {crews} crews;'
        ' {cause_short_low} is blamed.',
      ],
      [
        '{name}, {age}, is hailed as a hero for saving {saved_short}.',
        'Hero {name}, {age}, saved {saved_short}.',
      ],
    ],
    told_by=[(0, 1), (2, 3), (4,)],
    pairs={
      'building': [
        ('the old paper mill', 'historic factory'),
        ('a block of rented flats', 'apartment building'),
        ('the Grand Parade hotel', 'seaside hotel'),
        ('a warehouse full of tyres', 'storage depot'),
        ('the covered market', 'shopping hall'),
        ('a primary school', 'school'),
        ('the railway museum', 'museum'),
      ],
      'cause': [
        ('a heater left on overnight', 'Faulty heating'),
        ('worn wires behind a wall', 'Bad wiring'),
        ('a cigarette thrown into a bin', 'Smoker'),
        ('a lightning strike on the roof', 'Storm'),
        ('petrol poured by an intruder', 'Arsonist'),
        ('a pan of oil forgotten on a stove', 'Kitchen accident'),
      ],
      'saved': [
        ('two small boys', 'children'),
        ('her elderly neighbour', 'pensioner'),
        ('a litter of puppies', 'dogs'),
        ('a man who uses a wheelchair', 'disabled man'),
        ('a box of rare paintings', 'artworks'),
      ],
    },
    quotes=[
      (
        'We were minutes away from losing the whole street',
        'blaze nearly spread to other homes',
      ),
      ('Nobody should store fuel like that', 'fuel was kept unsafely'),
      (
        'The alarms did exactly what they were built to do',
        'alarms saved lives',
      ),
    ],
    numbers={
      'hurt': (2, 60),
      'crews': (3, 30),
      'hours': (2, 19),
      'age': (18, 80),
    },
  ),
  'storm': event.Event(
    role='forecaster',
    facts=[
      [
        '{kind_cap} struck {town} on {day}.',
        'On {day} {town} was hit by {kind}.',
        '{town} saw {kind} on {day}.',
      ],
      [
        'Left without power were {homes} homes.',
        'Power was lost in {homes} homes.',
        'In all {homes} homes lost power.',
      ],
      [
        'Gusts reached {speed} kilometres an hour.',
        'Wind of {speed} kilometres an hour was measured at the harbour.',
        'The wind rose to {speed} kilometres an hour.',
      ],
      [
        'Found alive was {name}, {age}, {refuge}.',
        'Rescuers found {name}, {age}, {refuge}.',
        'Alive, {refuge}: that is how they found {name}, {age}.',
      ],
      [
        'Repairs will cost {cost} million dollars and may take {weeks} weeks.',
        'Officials put the bill at {cost} million dollars and the'
        ' work at {weeks} weeks.',
        'It will cost {cost} million dollars and {weeks} weeks to'
        ' repair it all.',
      ],
    ],
    unseen=[
      'Nobody in {town} was ready for {kind} on {day}.',
      'The lights went out in {homes} homes.',
      'Instruments showed wind of {speed} kilometres an hour.',
      'Searchers came upon {name}, {age}, {refuge}.',
      'The damage is put at {cost} million dollars, and {weeks}'
      ' weeks of work lie ahead.',
    ],
    highlights=[
      [
        '{kind_short} cuts power to {homes} homes in {town}.',
        '{town}: {homes} homes lose power in {kind_short_low}.',
      ],
      [
        'Winds of {speed} km/h; damage put at ${cost} million over'
        ' {weeks} weeks.',
        'Damage of ${cost} million will take {weeks} weeks to'
        ' repair after {speed} km/h winds.',
      ],
      [
        '{name}, {age}, survives {refuge_short}.',
        'Survivor {name}, {age}, was {refuge_short}.',
      ],
    ],
    told_by=[(0, 1), (2, 4), (3,)],
    pairs={
      'kind': [
        ('a wall of rain and hail', 'Hailstorm'),
        ('the heaviest snow in memory', 'Blizzard'),
        ('a twisting column of wind', 'Tornado'),
        ('a storm from the open sea', 'Hurricane'),
        ('a cloud of desert dust', 'Sandstorm'),
      ],
      'refuge': [
        ('under a kitchen table', 'trapped at home'),
        ('clinging to a lamp post', 'swept outdoors'),
        ('inside an overturned van', 'stuck in vehicle'),
        ('on the roof of the church', 'stranded on roof'),
        ('in a drain below the road', 'caught underground'),
      ],
    },
    quotes=[
      ('The worst of it is behind us now', 'worst is over'),
      ('Stay at home until we say otherwise', 'residents should stay indoors'),
      ('We had no more than an hour of warning', 'warning came too late'),
    ],
    numbers={
      'homes': (120, 980),
      'speed': (85, 240),
      'cost': (3, 95),
      'weeks': (2, 20),
      'age': (6, 91),
    },
  ),
  'theft': event.Event(
    role='detective',
    facts=[
      [
        'Thieves took {loot} from {place} in {town} on {day}.',
        'On {day} {loot} disappeared from {place} in {town}.',
        '{loot_cap} was stolen on {day} from {place} in {town}.',
      ],
      [
        'It is [valued|insured] at {value} thousand dollars.',
        'Its owner puts the value at {value} thousand dollars.',
        'A dealer would pay {value} thousand dollars for it.',
      ],
      [
        'They got in {entry}.',
        'The gang seems to have come in {entry}.',
        'Cameras show that the thieves came {entry}.',
      ],
      [
        'The guard, {name}, {age}, was {guard}.',
        'On night duty was {name}, {age}, later found {guard}.',
        'The night guard, {name}, {age}, was {guard} at the time.',
      ],
      [
        'Police [arrested|are holding] {arrests} people and {still}'
        ' are still wanted.',
        'So far there are {arrests} arrests, and {still} others are'
        ' being sought.',
        'Officers hold {arrests} and look for {still} more.',
      ],
    ],
    unseen=[
      'Missing since {day} from {place} in {town} is {loot}.',
      'Experts speak of {value} thousand dollars.',
      'Nobody saw them arrive {entry}.',
      'When the police came, {name}, {age}, the guard, was {guard}.',
      'By evening {arrests} people were arrested, while {still} got away.',
    ],
    highlights=[
      [
        '{loot_short_cap} worth ${value},000 stolen from'
        ' {place_short} in {town}.',
        'Thieves steal {loot_short} worth ${value},000 in {town}'
        ' {place_short} raid.',
      ],
      [
        'Gang {entry_short}; guard {name}, {age}, {guard_short}.',
        'Guard {name}, {age}, {guard_short} as gang {entry_short}.',
      ],
      [
        '{arrests} arrested and {still} on the run.',
        'Police hold {arrests} and hunt {still} more.',
      ],
    ],
    told_by=[(0, 1), (2, 3), (4,)],
    pairs={
      'loot': [
        ('a violin made three centuries ago', 'antique instrument'),
        ('a golden cup', 'trophy'),
        ('a necklace of blue stones', 'jewels'),
        ('the first edition of a novel', 'rare book'),
        ('a bronze horse', 'sculpture'),
        ('a portrait of a young queen', 'painting'),
      ],
      'place': [
        ('the university library', 'library'),
        ('a villa on the hill', 'private home'),
        ('the concert hall', 'theatre'),
        ('a bank on the high street', 'bank'),
        ('the cathedral', 'church'),
      ],
      'entry': [
        ('through a hole in the roof', 'broke in from above'),
        ('with a copied key', 'used false key'),
        ('by way of the sewers', 'tunnelled in'),
        ('dressed as cleaners', 'wore disguise'),
      ],
      'guard': [
        ('asleep in a chair', 'slept through it'),
        ('tied up with a curtain', 'was bound'),
        ('sent away by a false call', 'was tricked'),
        ('locked in a cupboard', 'was shut in'),
      ],
    },
    quotes=[
      ('Whoever did this knew the building well', 'inside job is suspected'),
      (
        'It cannot be sold, everyone knows it',
        'stolen item is impossible to sell',
      ),
      ('We have one very good fingerprint', 'fingerprint was found'),
    ],
    numbers={
      'value': (25, 990),
      'age': (21, 68),
      'arrests': (2, 9),
      'still': (2, 9),
    },
  ),
  'crash': event.Event(
    role='inspector',
    facts=[
      [
        '{vehicle_cap} {mishap} near {town} on {day}.',
        'On {day}, close to {town}, {vehicle} {mishap}.',
        'It was on {day} near {town} that {vehicle} {mishap}.',
      ],
      [
        'The accident killed {dead} people and hurt {hurt}.',
        'Officials counted {dead} dead and {hurt} injured.',
        'There were {dead} dead and {hurt} hurt.',
      ],
      [
        'There were {aboard} people on board.',
        'It was carrying {aboard} people.',
        'On board were {aboard} people.',
      ],
      [
        'The one in charge, {name}, {age}, {state}.',
        'At the controls was {name}, {age}, who {state}.',
        '{name}, {age}, who was at the controls, {state}.',
      ],
      [
        'It belonged to {company} and was {years} years old.',
        'Its owner, {company}, had run it for {years} years.',
        '{company} had owned it for {years} years.',
      ],
    ],
    unseen=[
      'Near {town}, {vehicle} {mishap} on {day}.',
      'Rescuers counted {hurt} injured and {dead} dead.',
      'The list of those on board had {aboard} names.',
      'Police say that {name}, {age}, at the controls, {state}.',
      'For {years} years it had been in the fleet of {company}.',
    ],
    highlights=[
      [
        '{dead} killed and {hurt} injured as {vehicle_short}'
        ' {mishap_short} near {town}.',
        '{vehicle_short_cap} {mishap_short} near {town}: {dead}'
        ' dead, {hurt} injured.',
      ],
      [
        '{aboard} were aboard the {years}-year-old {company} vehicle.',
        '{company} vehicle, {years} years old, had {aboard} aboard.',
      ],
      [
        'Operator {name}, {age}, {state_short}.',
        '{name}, {age}, at the controls, {state_short}.',
      ],
    ],
    told_by=[(0, 1), (2, 4), (3,)],
    pairs={
      'vehicle': [
        ('a night express', 'train'),
        ('a school coach', 'bus'),
        ('a car ferry', 'ship'),
        ('a twin-engined aircraft', 'plane'),
        ('a cable car', 'gondola'),
      ],
      'mishap': [
        ('left its path on a bend', 'veers off course'),
        ('ran into a bridge', 'hits bridge'),
        ('burst into flames', 'catches fire'),
        ('came to rest on its side', 'overturns'),
        ('struck another in thick fog', 'collides'),
      ],
      'state': [
        ('had been awake for twenty hours', 'was exhausted'),
        ('was looking at a telephone', 'was distracted'),
        ('had a clean record', 'had no offences'),
        ('had drunk several glasses of wine', 'was drunk'),
        ('fainted moments before', 'lost consciousness'),
      ],
    },
    quotes=[
      (
        'The brakes should have been changed last year',
        'brakes were overdue for repair',
      ),
      ('I ask for patience, this will take months', 'inquiry will be long'),
      (
        'Quick work by passers-by kept the number down',
        'bystanders prevented more deaths',
      ),
    ],
    numbers={
      'dead': (2, 30),
      'hurt': (31, 90),
      'aboard': (120, 480),
      'years': (3, 40),
      'age': (22, 66),
    },
  ),
}
