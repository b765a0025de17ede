"""Days, months and the sentences around the facts of a story.

Lists whose names begin with UNSEEN hold what only the evaluation's articles
say.
"""

DAYS = [
  'Monday',
  'Tuesday',
  'Wednesday',
  'Thursday',
  'Friday',
  'Saturday',
  'Sunday',
]

MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
]

# Sentences that set the scene and carry no fact of the highlights.
OPENERS = [
  'It began as an ordinary {day} in {town}.',
  'For most people in {town} the {season} had been quiet.',
  'Few in {town} will forget this week.',
  'The people of {town} are used to being left alone.',
  'Visitors rarely come to {town} in the {season}.',
  'The town of {town} woke to unusual news on {day}.',
]

UNSEEN_OPENERS = [
  'Outside the town hall in {town} a small crowd had gathered by noon.',
  'There was talk of little else in {town} on {day}.',
]

SEASONS = ['winter', 'spring', 'summer', 'autumn']

# Sentences about something else; o_* are other people, places and numbers.
ASIDES = [
  'A shopkeeper in {o_town}, {o_name}, said [people|customers] had spoken of'
  ' nothing else[| for days].',
  'A similar case in {o_town} in {o_year} [took months to settle|was soon'
  ' forgotten|drew little notice].',
  'Some {o_num} residents have signed a letter [asking for answers|calling'
  ' for a public meeting].',
  'Local radio [reported|said] that traffic was slow near {o_town} for'
  ' {o_small} hours.',
  '"I have lived here for {o_age} years and never seen the like," said'
  ' [retired teacher|baker|bus driver|neighbour] {o_name}.',
  'The mayor of {o_town}, {o_name}, [declined to comment|could not be'
  ' reached|sent a short message of support].',
  'In {o_month} {o_year} the town of {o_town} [faced|went through] something'
  ' much the same, with {o_num} people affected.',
  'Schools in {o_town} were [open as usual|closed for the day].',
  'Editor {o_name} of the regional newspaper said [the story had been'
  ' read|the page had been viewed] {o_num} thousand times.',
  'Weather in the region was [mild|cold and wet|unusually warm] and the'
  ' roads were [clear|busy].',
  'A hotline opened in {o_town} took {o_num} calls, said its [head|manager]'
  ' {o_name}.',
  'By {o_month}, officials [hope|expect] to publish a report of {o_num} pages.',
  'From {o_town} came {o_name}, {o_age}, [by train|on foot|by bicycle], to'
  ' see what had happened.',
  'A website about the matter was read by {o_num} thousand people[|, most of'
  ' them abroad].',
  'Flags flew at half mast in {o_town} until {o_month} {o_year} after a loss'
  ' of that kind, and {o_name} wrote a song about it.',
]

UNSEEN_ASIDES = [
  'The church in {o_town} [kept its doors open|rang its bells|offered hot'
  ' soup] through the night, and {o_small} volunteers [stayed|helped].',
  'Insurers say that since {o_year} some {o_num} claims of that sort have'
  ' been made[ in {o_town}|].',
  'A petition started by {o_name}, {o_age}, has {o_num} names so far.',
  'Cafes in {o_town} gave away {o_num} cups of coffee, said'
  ' [waiter|cook|landlady] {o_name}.',
  'The historian {o_name}, who wrote about the region in {o_year}, counts'
  ' {o_small} earlier cases.',
]

# Sentences that come back to a person of the story, some time after the first
# mention; `last` is the last name.
FOLLOW_UPS = [
  '{last} [declined to say more|will speak again next week|asked for privacy].',
  'Friends describe {name} as [patient|stubborn|generous|quiet].',
  'Those who know {name} were [surprised|not surprised].',
  'Letters for {last} have been left at the town hall.',
]

UNSEEN_FOLLOW_UPS = [
  '{name} has [lived in {town} for years|family in {town}|never left {town}].',
  'A crowd waited for {name} outside, but {last} left by the back door.',
]

# Sentences that lead from one event of a round-up to the next.
TURNS = [
  'In other news, eyes turned to {town}.',
  'Elsewhere the talk was of {town}.',
  'Meanwhile {town} had news of its own.',
]

UNSEEN_TURNS = ['Another report came from {town}.']
