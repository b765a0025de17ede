"""Writes an HTML page of results that needs no server and no network.

A single result produces a page about its run. Several results, or additional
published results, produce a page that compares them:

report --result=results/offline --output=page.html
report --result=ID --result=ID --official=summary_results.json
  --output=page.html
"""

from collections.abc import Sequence
import dataclasses

from absl import app
from absl import flags

from harness import dashes
from harness import errors
from harness.caching import cache as cache_lib
from harness.pages import compare_page
from harness.pages import costs
from harness.pages import official_results
from harness.pages import run_page
from harness.results import store
from saxml_ext.common import user_path
from saxml_ext.common.pages import page_kit

_RESULT = flags.DEFINE_multi_string(
  'result',
  [],
  'The directory of a job, or the first characters of a result ID. Repeatable.',
)
_RESULTS_DIR = flags.DEFINE_string(
  'results_dir',
  None,
  "The directory of results with these IDs. Default: the cache's results.",
)
_OFFICIAL = flags.DEFINE_multi_string(
  'official',
  [],
  'A file of published results: summary_results.json of an inference_results'
  ' repository, or summary.csv of submission_checker.py. Repeatable.',
)
_OUTPUT = flags.DEFINE_string('output', None, 'The HTML file to write.')
_PRICE_PER_HOUR = flags.DEFINE_multi_string(
  'price_per_hour',
  [],
  'The price of the system per hour, in any currency. NAME:PRICE applies to'
  ' the result with the ID, system or platform NAME. Repeatable.',
)


def _page() -> str:
  """Returns the page as HTML.

  Raises:
    OSError, ValueError: An argument of the user is unusable.
  """
  prices = costs.parse_prices(_PRICE_PER_HOUR.value)
  results_dir = user_path.resolve(_RESULTS_DIR.value) or (
    cache_lib.get().results
  )
  jobs = [
    run_page.read(store.find_job(name, results_dir)) for name in _RESULT.value
  ]
  published = [
    dataclasses.replace(record, cost_per_1000=compare_page.cost(record, prices))
    for record in official_results.read_all(
      [user_path.resolve(path) for path in _OFFICIAL.value]
    )
  ]
  if not jobs and not published:
    raise ValueError('There are no results. Pass --result or --official.')
  if len(jobs) == 1 and not published:
    return run_page.render(jobs[0], costs.price(jobs[0].entry, prices))
  ours = [
    compare_page.from_entry(
      job.entry, job.set_size, costs.price(job.entry, prices)
    )
    for job in jobs
  ]
  return compare_page.render(ours + published)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unexpected argument {argv[1]!r}')
  output = user_path.resolve(_OUTPUT.value)
  with dashes.exit_on('report', text=errors.reason):
    page_kit.write(output, _page())
  print(f'The page is {output}; open it in a browser.')


if __name__ == '__main__':
  flags.mark_flag_as_required('output')
  dashes.run(main)
