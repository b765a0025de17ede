"""The page that composes commands: a form, and the command it stands for."""

import dataclasses

from harness.pages import choices
from harness.pages import markup


def render() -> str:
  """The page as HTML; it needs no server."""
  groups = [
    markup.element(
      'fieldset',
      markup.element('legend', group),
      markup.element(
        'div',
        *(_field(each) for each in choices.CHOICES if each.group == group),
        class_='controls',
      ),
    )
    for group in choices.GROUPS
  ]
  header = markup.header(
    'MLPerf Inference with this harness',
    'Compose a run',
    markup.paragraph(
      'This page runs nothing: choose what to run, copy the command, and run'
      ' it in a checkout. What is left empty has the default of the program.'
    ),
  )
  main = markup.element(
    'main',
    _command(),
    markup.element(
      'form',
      markup.section('choices', 'Choices', *groups),
      id='form',
      autocomplete='off',
    ),
    id='main',
  )
  table = [dataclasses.asdict(each) for each in choices.CHOICES]
  data = {'program': choices.PROGRAM, 'choices': table}
  return markup.document(
    'Compose a run',
    markup.join([header, main, markup.data('table', data)]),
    ['compose.js'],
    charts=False,
  )


def _command() -> markup.Html:
  composed = choices.command(choices.defaults())
  return markup.section(
    'composer',
    'Command',
    markup.element('pre', markup.element('code', composed, id='composed')),
    markup.element('button', 'Copy', type='button', id='copy'),
    markup.element('span', '', id='copied', role='status'),
    markup.element('ul', '', id='remarks', aria_live='polite'),
    markup.Html(
      '<noscript><p class="note">Without JavaScript the command above does not'
      ' follow the choices below; their help tells the flags.</p></noscript>'
    ),
  )


def _field(each: choices.Choice) -> markup.Html:
  identifier = f'flag-{each.flag}'
  about = f'about-{each.flag}'
  help_text = markup.element(
    'small',
    each.help,
    markup.element('code', f'--{each.flag}'),
    id=about,
    class_='help',
  )
  if each.kind == 'many':
    boxes = markup.join(_box(each, option) for option in each.options)
    inner = [markup.element('legend', each.title), boxes, help_text]
    return markup.element(
      'fieldset', *inner, data_flag=each.flag, aria_describedby=about
    )
  if each.kind == 'switch':
    box = markup.element(
      'label', _input(identifier, about, type='checkbox'), f' {each.title}'
    )
    return _part(each, [box, help_text])
  label = markup.element('label', each.title, for_=identifier)
  if each.kind == 'one':
    options = [(option, option) for option in each.options]
    if not each.chosen:
      options.insert(0, ('', "the program's default"))
    field = markup.choice(
      identifier, options, each.chosen, aria_describedby=about
    )
  else:
    shown = {'type': 'number', 'min': '0', 'step': 'any'}
    field = _input(
      identifier,
      about,
      **(shown if each.kind == 'number' else {'type': 'text'}),
    )
  return _part(each, [label, field, help_text])


def _part(each, inner) -> markup.Html:
  return markup.element('div', *inner, data_flag=each.flag)


def _box(each, option) -> markup.Html:
  box = _input(
    f'flag-{each.flag}-{option}',
    f'about-{each.flag}',
    type='checkbox',
    value=option,
    checked='' if option in each.chosen.split(',') else None,
  )
  return markup.element('label', box, f' {option}', class_='box')


def _input(identifier: str, about: str, **attributes: object) -> markup.Html:
  return markup.void(
    'input', id=identifier, aria_describedby=about, **attributes
  )
