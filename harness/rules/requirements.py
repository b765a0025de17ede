"""Defines the requirements of MLPerf Inference on submissions.

They depend on the round. Source: tools/submission of mlcommons/inference at the
tags v3.1 to v5.1, and its package submission_checker of 2026 for v6.0 and v6.1.
The module `rounds` has the rounds' requirements on LoadGen itself.
"""

from harness.rules import rounds

OPEN = 'open'
CLOSED = 'closed'
NETWORK = 'network'
DIVISIONS = (OPEN, CLOSED, NETWORK)

DATACENTER = 'datacenter'
EDGE = 'edge'
CATEGORIES = (DATACENTER, EDGE)

# Text that the name of a system must contain if LoadGen reaches it over a
# network.
NETWORK_SUT = 'Network SUT'


def is_closed(division: str) -> bool:
  """Returns True if the rules of the closed division apply to a division.

  The Network division inherits all of them. Source: inference_rules.adoc of
  mlcommons/inference_policies, "Network Division".
  """
  return division in (CLOSED, NETWORK)


def results_hold_all(round_name: str) -> bool:
  """Returns True if results have measurements and compliance (since v6.0)."""
  return rounds.is_at_least(round_name, 'v6.0')


def needs_mlperf_conf(round_name: str) -> bool:
  """Returns True if mlperf.conf must be next to user.conf (until v4.1)."""
  return not rounds.is_at_least(round_name, 'v5.0')


def needs_calibration(round_name: str, division: str) -> bool:
  """Returns True if the submission must have a calibration.md."""
  return is_closed(division) and rounds.is_at_least(round_name, 'v5.1')


def takes_short_runs(round_name: str) -> bool:
  """Returns True if open runs may be shorter than ten minutes (until v4.0)."""
  return not rounds.is_at_least(round_name, 'v4.1')


# The option of official checkers that accept an open accuracy run of a part of
# the set. Checkers of rounds until v5.1 need no option.
SKIP_SET_SIZE = '--skip-dataset-size-check'


def takes_parts_of_the_set(round_name: str) -> bool:
  """Returns True if open accuracy runs may use part of the set (until v5.1)."""
  return not rounds.is_at_least(round_name, 'v6.0')


def needs_samples_per_query(round_name: str, division: str) -> bool:
  """Returns True if an Offline query must have at least the whole set."""
  return is_closed(division) or not rounds.is_at_least(round_name, 'v6.0')
