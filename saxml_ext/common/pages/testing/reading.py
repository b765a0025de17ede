"""Parses a page like a browser, for tests."""

import html.parser
import json
from typing import Any

_URL_ATTRIBUTES = ('src', 'href', 'srcset', 'action', 'data')


class Page(html.parser.HTMLParser):
  """The contents of a page.

  Attributes:
    ids: The ids of its elements.
    tags: The names of its elements.
    urls: The URLs that its elements load or link to.
    texts: The texts outside of scripts and styles.
    data: The JSON in script elements, by the id of the element.
    scripts: The texts of the scripts that run.
    options: The values of the elements `option`.
    selected: The options that are selected when the page opens.
  """

  def __init__(self, text: str):
    super().__init__()
    self.ids: list[str] = []
    self.tags: list[str] = []
    self.urls: list[str] = []
    self.texts: list[str] = []
    self.data: dict[str, Any] = {}
    self.scripts: list[str] = []
    self.options: list[str] = []
    self.selected: list[str] = []
    self._open: dict[str, str | None] | None = None
    self._tag = ''
    self.feed(text)
    self.close()

  def handle_starttag(self, tag, attrs):
    attributes = dict(attrs)
    self._tag = tag
    self.tags.append(tag)
    if 'id' in attributes:
      self.ids.append(attributes['id'] or '')
    if tag == 'option':
      self.options.append(attributes.get('value') or '')
      if 'selected' in attributes:
        self.selected.append(self.options[-1])
    self.urls += [
      value for name, value in attrs if name in _URL_ATTRIBUTES and value
    ]
    self._open = attributes

  def handle_endtag(self, tag):
    self._tag = ''

  def handle_data(self, data):
    if self._tag == 'script' and self._open is not None:
      if self._open.get('type') == 'application/json':
        self.data[self._open['id'] or ''] = json.loads(data)
      else:
        self.scripts.append(data)
    elif self._tag != 'style' and data.strip():
      self.texts.append(data.strip())

  @property
  def text(self) -> str:
    return ' '.join(self.texts)

  @property
  def outside(self) -> list[str]:
    """The URLs that the page would load from other sites."""
    return [u for u in self.urls if not u.startswith(('#', 'data:'))]
