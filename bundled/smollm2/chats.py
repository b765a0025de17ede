"""The chats with which SmolLM2's answers are compared with transformers'."""

from collections.abc import Sequence


def _chat(*turns: str, system: str = '') -> list[dict[str, str]]:
  """Returns the messages of a chat whose turns begin with the user's."""
  roles = ('user', 'assistant')
  return [
    *([{'role': 'system', 'content': system}] if system else []),
    *({'role': roles[i % 2], 'content': turn} for i, turn in enumerate(turns)),
  ]


CHATS: Sequence[list[dict[str, str]]] = (
  _chat('What is the capital of France?'),
  _chat('Why is the sky blue? Answer in two sentences.'),
  _chat('Übersetze ins Englische: Die Äpfel sind süß und größer als früher.'),
  _chat('Describe this mood in one word: 😀🎉👩‍👩‍👧'),
  _chat('Write a haiku about the sea.', system='You are a poet.'),
  _chat('List three fruits.', 'Apple, pear, plum.', 'And three vegetables?'),
  _chat(
    'My name is Zoë.',
    'Nice to meet you, Zoë! How can I help?',
    'What is my name?',
    system='You are a polite assistant. Keep your answers short.',
  ),
  _chat('Write a Python function that returns the sum of a list.'),
  _chat('What is 17 + 25?', system='You are a calculator.'),
  _chat('¿Cuál es la capital de España? ¡Gracias!'),
  _chat('Translate to German: "Good morning, how are you?"'),
  _chat('   Spaces   and\ttabs\n\n\nand lines:  what did I write?   '),
  _chat('日本の首都はどこですか。'),
  _chat(
    'I have 3 apples and eat one.',
    'Then you have 2 apples left. 🍎',
    'I buy 10 more. How many do I have?',
    'You have 12 apples. 🍎',
    'Thanks! Say goodbye.',
  ),
  _chat('Summarize: The cat sat on the mat. It was warm. The cat slept.'),
  _chat('Erzähle einen kurzen Witz über Käse.', system='Antworte auf Deutsch.'),
  _chat('Give me a JSON object with the keys "name" and "age".'),
  _chat("Rewrite politely: 'Send me the file now!!!'", system='Be brief. 🙂'),
  _chat('Who wrote "Faust"? And when was it published (year only)?'),
  _chat(
    'Explain gravity to a child.',
    'Gravity is a force that pulls things down to the ground.',
    'Why do we not feel the Earth moving?',
    system='You are a teacher at a primary school in Zürich.',
  ),
)
# The chats whose answers are also searched with beams.
BEAM_CHATS = (CHATS[0], CHATS[2], CHATS[3], CHATS[4], CHATS[6])
