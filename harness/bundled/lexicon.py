"""Names, places and phrases that the article generator draws from.

Everything here is invented for this project. A pair `(long, short)` is one
idea in the words of the article and in the words of the highlights, so that a
summary cannot be had by copying.
"""

FIRST_NAMES = """
Aaron Ada Agnes Alan Alma Amara Amos Andre Anita Anton Arlo Asha Astrid Aurel
Basil Beatriz Bella Benoit Bianca Boris Bram Brenda Bruno Callum Camila Carmen
Cedric Celia Chloe Clara Conrad Cora Dalia Damian Dario Della Desmond Diana
Dimitri Dora Dylan Edgar Edith Elena Elias Elsa Emeka Emil Enid Enzo Erica
Esther Ezra Fabian Farah Felix Fiona Flora Frank Freya Gavin Gemma Gilbert
Gloria Goran Greta Gus Hana Harold Hassan Hazel Hector Helga Hugo Ibrahim Ida
Imani Ines Ingrid Iris Isaac Ivan Jada Jasper Joan Jonas Judith Julia Kamal
Karin Keiko Kofi Lara Lars Leila Leon Lionel Lorna Luca Luisa Mabel Magnus
Malik Marcus Marisol Martha Mateo Mika Milan Mina Mona Nadia Naomi Neil Nora
Odette Olaf Omar Orla Oscar Paloma Pedro Petra Quentin Rafael Ramona Ravi
Renata Rhea Roland Rosa Ruben Ruth Samir Saskia Selma Silas Simone Sofia Stan
Sven Tamar Tariq Tessa Theo Thora Tobias Uma Ursula Vera Victor Viola Wanda
Walter Yara Yusuf Zara Zelda Zoltan
""".split()

LAST_NAMES = """
Abara Ackland Adeyemi Albrecht Almeida Amsel Anders Arkwright Ashdown Babic
Bakker Balogun Barlow Beaumont Becker Bellamy Bergman Blackwood Bloom Bosko
Brandt Brennan Brooks Burke Calder Cardoso Carver Castell Chandra Cho Clarke
Cobb Conti Corbin Costa Cranmer Crowe Dahl Danso Darrow Delgado Denholm Desai
Dietrich Dobson Donnelly Drake Duarte Dunmore Eastman Eklund Elwood Emerson
Engel Esposito Fairfax Falk Farrow Ferrara Fischer Flynn Fontaine Foster Frost
Gallo Garrick Georgiou Gibbs Gordon Grady Greaves Gupta Haddad Hale Halloran
Hammond Hansen Harcourt Hargreave Hayashi Heller Hobbs Holloway Horvat Hughes
Ibarra Ilves Jansen Jarvis Jensen Johal Kaplan Kato Kendall Keppler Khan
Kimura Kirby Klein Kovac Kruger Lambert Langley Larkin Laurent Lawson Lindqvist
Lombard Lowell Lund Maddox Malone Marchetti Marlow Mason Mbeki Medina Mercer
Molnar Monroe Moreau Morita Mulder Nakata Navarro Nielsen Novak Nwosu Oakley
Odell Okafor Olsen Ortega Osei Paget Palmer Parrish Patel Pavlov Penrose
Pereira Petrov Pickering Quigley Quinn Rahman Ramsey Redfern Reyes Rhodes
Ritter Rocha Romano Rosen Rowe Sadler Salgado Sandoval Sato Sauer Schaefer
Seaton Serrano Sharma Shaw Silva Sinclair Skov Slater Soto Stark Stavros Stone
Strand Sutton Suzuki Tanaka Tate Teller Thorne Tierney Tobin Toller Torres
Tran Turner Ueda Underhill Vance Varga Vaughn Velasco Vickers Vogel Wagner
Walsh Ward Watanabe Weaver Webb Weiss Westby Whitlock Wilder Winslow Wolfe
Wren Yamada Yates Yilmaz Zeller Zhou Zimmer
""".split()

TOWNS = """
Abbotsford Alderney Amberley Ashcombe Avonlea Balmoral Bexhill Blackhaven
Bramford Briarton Brockwell Calverton Camden Carrowmore Castlebay Chalford
Clearwater Colbridge Cranston Crestview Dalmore Deepford Dunbridge Eastleigh
Eldoria Elmhurst Fairhaven Fenwick Fernhill Foxdale Glenmoor Granby Greystone
Halden Harborough Hartwell Hawksworth Hazelton Highmere Hollowell Ironbridge
Kelso Kingsport Lakemont Langford Larkspur Linwood Lochmere Maplewood Marston
Meridian Millbrook Montrose Moorgate Newhaven Northgate Oakridge Ostrava
Pemberton Pinecrest Porthaven Quarry Ravenna Redcliff Ridgeway Rockport
Rosedale Saltmarsh Sandhurst Seabrook Shelby Silverton Southwick Stanmore
Stonefield Summerset Tarrant Thornbury Tidewater Valmont Wakefield Waverly
Westbrook Whitby Willowdale Windmere Woodlake Wyndham Yarrow
""".split()

COMPANY_HEADS = """
Acorn Altair Amberline Apex Arcadia Atlas Aurora Beacon Bluestone Borealis
Brightwater Cascade Cobalt Compass Copperfield Delta Eastwind Ember Falcon
Fairway Granite Halcyon Harbor Helios Horizon Ironwood Juniper Keystone
Lantern Lodestar Longview Magnolia Meridian Northstar Nova Obsidian Orchard
Orion Paragon Pinnacle Polaris Quantum Redwood Riverside Saffron Sentinel
Sierra Silverline Solstice Sterling Summit Tamarack Trident Vanguard Vertex
Westgate Zenith
""".split()

COMPANY_TAILS = [
    'Foods', 'Motors', 'Energy', 'Airways', 'Textiles', 'Logistics', 'Media',
    'Pharma', 'Steel', 'Systems', 'Telecom', 'Chemicals', 'Robotics', 'Bank',
]

DAYS = [
    'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday',
    'Sunday',
]

MONTHS = [
    'January', 'February', 'March', 'April', 'May', 'June', 'July', 'August',
    'September', 'October', 'November', 'December',
]

# Sentences that set the scene and carry no fact of the highlights.
OPENERS = [
    'It began as an ordinary {day} in {town}.',
    'For most people in {town} the {season} had been quiet.',
    'Few in {town} will forget this week.',
    'The people of {town} are used to being left alone.',
    'Visitors rarely come to {town} in the {season}.',
    'The town of {town} woke to unusual news on {day}.',
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
    'By {o_month}, officials [hope|expect] to publish a report of {o_num}'
    ' pages.',
    'From {o_town} came {o_name}, {o_age}, [by train|on foot|by bicycle], to'
    ' see what had happened.',
    'A website about the matter was read by {o_num} thousand people[|, most of'
    ' them abroad].',
    'Flags flew at half mast in {o_town} until {o_month} {o_year} after a loss'
    ' of that kind, and {o_name} wrote a song about it.',
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
    '{last} [declined to say more|will speak again next week|asked for'
    ' privacy].',
    'Friends describe {name} as [patient|stubborn|generous|quiet].',
    'Those who know {name} were [surprised|not surprised].',
    'Letters for {last} have been left at the town hall.',
    '{name} has [lived in {town} for years|family in {town}|never left'
    ' {town}].',
    'A crowd waited for {name} outside, but {last} left by the back door.',
]
