"""Questions about fires, storms, thefts and crashes."""

from bundled.bert.wordings import wording

_ask = wording.Wording

WORDINGS: wording.Wordings = {
  'fire': (
    _ask(
      '{building}',
      [
        'What [burned|was destroyed by the flames]?',
        'Which building did the fire [destroy|damage]?',
        'What was on fire in {town}?',
      ],
      ['Which place went up in smoke?'],
    ),
    _ask(
      '{town}',
      [
        'Where did the fire [happen|start]?',
        'In which town was the blaze?',
        'Which town had a [big|] fire?',
      ],
      ['What is the name of the town where the blaze was?'],
    ),
    _ask(
      '{day}',
      [
        'When did the fire [start|happen]?',
        'On which day was the blaze?',
        'What day did it burn?',
      ],
      ['Which day of the week was the fire?'],
    ),
    _ask(
      '{hurt}',
      [
        'How many [people|] were injured [in|by] the fire?',
        'How many victims did the blaze have?',
        'How many people were hurt by flames or smoke?',
      ],
      ['What was the number of people injured in the blaze?'],
    ),
    _ask(
      '{crews}',
      [
        'How many [teams of firefighters|fire crews] were [sent|needed]?',
        'How many crews [came to|fought] the fire?',
        'What number of fire engines and crews [was there|came]?',
      ],
      ['How many teams fought the blaze?'],
    ),
    _ask(
      '{hours} hours',
      [
        'How long [did the fire last|did the blaze burn]?',
        'For how long did the firefighters work?',
        'How much time did they need to stop the fire?',
      ],
      ['After how much time was the blaze over?'],
    ),
    _ask(
      '{cause}',
      [
        'How did the fire [start|begin]?',
        'What [probably|] started the blaze?',
        'Why did {building} burn?',
      ],
      ['What is said to have started the fire?'],
    ),
    _ask(
      '{name}',
      [
        'Who [went into|entered] the burning building?',
        'Who is the hero of the fire?',
        'Who rescued {saved}?',
      ],
      ['What is the name of the hero of the blaze?'],
    ),
    _ask(
      '{saved}',
      [
        'What did {name} [rescue|bring out]?',
        'Who or what was rescued from the fire?',
        'What did the hero bring out of the flames?',
      ],
      ['Who or what did the hero of the fire rescue?'],
    ),
  ),
  'storm': (
    _ask(
      '{kind}',
      [
        'What kind of weather [struck|came to] {town}?',
        'What sort of storm was it?',
        'What [hit|did the damage in] {town}?',
      ],
      ['Which kind of storm came to the town?'],
    ),
    _ask(
      '{town}',
      [
        'Where was the storm?',
        'Which town [suffered|was damaged] in the storm?',
        'In which town did the storm do damage?',
      ],
      ['What is the name of the town in the storm?'],
    ),
    _ask(
      '{day}',
      [
        'When was the storm?',
        'On which day did the storm [come|arrive]?',
        'What day did bad weather reach {town}?',
      ],
      ['Which day of the week did the storm come?'],
    ),
    _ask(
      '{homes}',
      [
        'How many [houses|households] had no electricity?',
        'How many homes went dark in the storm?',
        'For how many families did the lights go out?',
      ],
      ['What was the number of houses without electricity?'],
    ),
    _ask(
      '{speed} kilometres an hour',
      [
        'How fast was the [storm|air]?',
        'How strong did the storm blow?',
        'What was the top speed in the storm?',
      ],
      ['What speed did the storm blow at?'],
    ),
    _ask(
      '{name}',
      [
        'Who survived the storm {refuge}?',
        'Who was rescued after the storm?',
        'Who is the survivor of the storm?',
      ],
      ['What is the name of the survivor of the storm?'],
    ),
    _ask(
      '{refuge}',
      [
        'Where was {name} [discovered|rescued]?',
        'In what place did {name} survive the storm?',
        'Where did rescue teams get to the survivor?',
      ],
      ['In what place was the survivor of the storm?'],
    ),
    _ask(
      '{cost} million dollars',
      [
        'How much [money|] is the damage of the storm?',
        'How expensive was the storm?',
        'What will rebuilding after the storm cost?',
      ],
      ['How much money does the storm damage come to?'],
    ),
    _ask(
      '{weeks} weeks',
      [
        'How long will rebuilding [after the storm|] take?',
        'How much time is needed after the storm?',
        'When will the storm damage be mended?',
      ],
      ['For how long will they rebuild after the storm?'],
    ),
  ),
  'theft': (
    _ask(
      '{loot}',
      [
        'What did the [robbers|burglars] steal?',
        'Which object is gone after the theft?',
        'What was the loot?',
      ],
      ['Which object did the robbers carry away?'],
    ),
    _ask(
      '{place}',
      [
        'Which building was [robbed|burgled]?',
        'Where had {loot} been kept?',
        'What did the burglars break into?',
      ],
      ['Which building did the robbers break into?'],
    ),
    _ask(
      '{town}',
      [
        'In which town was the theft?',
        'Where did the burglary [happen|take place]?',
        'Which town was visited by robbers?',
      ],
      ['What is the name of the town where the theft was?'],
    ),
    _ask(
      '{day}',
      [
        'When was the [theft|burglary]?',
        'On which day did the robbers come?',
        'What day was {loot} lost?',
      ],
      ['Which day of the week was the theft?'],
    ),
    _ask(
      '{value} thousand dollars',
      [
        'How much is the [loot|stolen object] worth?',
        'What is the price of {loot}?',
        'How expensive is what the robbers have?',
      ],
      ['How much money is the loot worth?'],
    ),
    _ask(
      '{entry}',
      [
        'How did the [robbers|burglars] enter?',
        'In what way was the building entered?',
        "What was the burglars' way [in|into the building]?",
      ],
      ['In what way did the robbers enter?'],
    ),
    _ask(
      '{name}',
      [
        'Who was [to guard|watching] the building?',
        'Who was the watchman?',
        'Who should have prevented the theft?',
      ],
      ['What is the name of the watchman?'],
    ),
    _ask(
      '{guard}',
      [
        'What [had happened to|was the state of] {name}?',
        'Where or how was the watchman during the theft?',
        'Why could {name} not stop the robbers?',
      ],
      ['Why could the watchman not prevent the theft?'],
    ),
    _ask(
      '{arrests}',
      [
        'How many [suspects|robbers] were caught?',
        'How many suspects are in custody?',
        'How many were seized by police over the theft?',
      ],
      ['What is the number of suspects in custody?'],
    ),
    _ask(
      '{still}',
      [
        'How many [suspects|robbers] are free?',
        'How many are on the run?',
        'How many suspects have not been caught?',
      ],
      ['What number of robbers is on the run?'],
    ),
  ),
  'crash': (
    _ask(
      '{vehicle}',
      [
        'What [crashed|had an accident]?',
        'Which vehicle was in the crash?',
        'What sort of vehicle crashed near {town}?',
      ],
      ['Which sort of vehicle had the accident?'],
    ),
    _ask(
      '{town}',
      [
        'Where did the [crash|accident] happen?',
        'Which town is close to the scene of the crash?',
        'Near which town was the crash?',
      ],
      ['What is the name of the town close to the crash?'],
    ),
    _ask(
      '{day}',
      [
        'When did the [crash|accident] happen?',
        'On which day was the crash?',
        'What day did {vehicle} crash?',
      ],
      ['Which day of the week was the crash?'],
    ),
    _ask(
      '{dead}',
      [
        'How many [people|passengers] died in the crash?',
        'How many lives did the accident cost?',
        'What is the death toll of the crash?',
      ],
      ['How many lost their lives in the crash?'],
    ),
    _ask(
      '{hurt}',
      [
        'How many [people|passengers] survived the crash with wounds?',
        'How many were wounded in the crash?',
        'What was the number of wounded after the accident?',
      ],
      ['How many passengers were wounded in the accident?'],
    ),
    _ask(
      '{aboard}',
      [
        'How many passengers [were there|did it have]?',
        'How many travelled in {vehicle}?',
        'What was the number of passengers?',
      ],
      ['How many people travelled with it before the crash?'],
    ),
    _ask(
      '{name}',
      [
        'Who [drove|steered|operated] the vehicle?',
        'Who was driving?',
        'Who was responsible for steering {vehicle}?',
      ],
      ['What is the name of who was driving?'],
    ),
    _ask(
      '{state}',
      [
        'What do we know of {name} before the crash?',
        'What is reported of the driver?',
        'What about {name}, the driver?',
      ],
      ['What do we know of the driver?'],
    ),
    _ask(
      '{company}',
      [
        'Which [company|firm] operated the vehicle that crashed?',
        'Who owned {vehicle}?',
        'Whose vehicle crashed?',
      ],
      ['Which firm owned the vehicle?'],
    ),
    _ask(
      '{years} years',
      [
        'How old was the vehicle?',
        'How long had it been in service before the crash?',
        'What was the age of {vehicle}?',
      ],
      ['How long had the vehicle been in service?'],
    ),
  ),
}
