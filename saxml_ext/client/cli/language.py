"""saxutil commands for language models."""

from collections.abc import Callable, Sequence
import sys

from saxml_ext.client import sax
from saxml_ext.client.cli import command
from saxml_ext.client.cli import extra_flag
from saxml_ext.client.cli import go_flags
from saxml_ext.client.cli import go_format
from saxml_ext.client.cli import lm_stream
from saxml_ext.client.cli import text_table
from saxml_ext.common import errors
from saxml_ext.common import ids

# Gradients are long; so many numbers of each are shown.
_MAX_GRADIENT_VALUES = 8


def _open(
  context: command.Context, args: go_flags.Parsed
) -> tuple[sax.LanguageModel, sax.ModelOptions]:
  model_id = str(ids.parse_model_id(args.rest[0]))
  options = context.model_options()
  extra_flag.set_from_text(options, args['extra'])
  model = sax.Model(model_id, sax.Options(proxy_addr=args['proxy']))
  return model.LM(), options


def _numbers(values: Sequence[float]) -> str:
  return ', '.join(map(go_format.general, values))


def _generate(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 2, 2)
  if args['stream'] and args['terse']:
    raise errors.InvalidArgument(
      'terse output (-terse) cannot be streamed: leave out -stream'
    )
  if args['stream'] and args['n'] > 0:
    raise errors.InvalidArgument(
      'a limit of outputs (-n) cannot be streamed: leave out -stream'
    )
  lm, options = _open(context, args)
  query = sys.stdin.read() if args.rest[1] == '-' else args.rest[1]
  if args['stream']:
    _stream(lm, query, options)
    return
  results = lm.Generate(query, options)
  if args['terse']:
    results.sort(key=lambda result: result[1], reverse=True)
  if args['n'] > 0:
    results = results[: args['n']]
  if args['terse']:
    for text, _ in results:
      print(text)
    return
  rows = [(text, go_format.general(score)) for text, score in results]
  print(text_table.render(['generate', 'Score'], rows), end='')


def _stream(
  lm: sax.LanguageModel, query: str, options: sax.ModelOptions
) -> None:
  # What fails is told where the stream is shown, as stock saxutil does.
  try:
    lm.GenerateStream(query, lm_stream.Screen(), options)
  except lm_stream.BadPrefix as e:
    print(e.message)
    raise command.Told(e) from e
  except errors.DeadlineExceeded as e:
    print(f'Command canceled: {e.message}')
    raise command.Told(e) from e
  except errors.SaxError as e:
    code = errors.camel_case(e.code)
    print(f'Command failed: rpc error: code = {code} desc = {e.message}')
    raise command.Told(e) from e


def _score(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 3, None)
  lm, options = _open(context, args)
  prefix, suffixes = args.rest[1], args.rest[2:]
  scores = list(map(go_format.general, lm.Score(prefix, suffixes, options)))
  each = len(scores) // len(suffixes)
  rows = []
  for i, suffix in enumerate(suffixes):
    row = [suffix, *scores[i * each : (i + 1) * each]]
    # Readers of the table expect as many columns as there are scores.
    rows.append(row + [''] * (1 + len(scores) - len(row)))
  print(text_table.render(['Suffix', 'Score'], rows), end='')


def _embed(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 2, 2)
  lm, options = _open(context, args)
  row = (args.rest[1], _numbers(lm.Embed(args.rest[1], options)))
  print(text_table.render(['Text', 'Embedding'], [row]), end='')


def _gradient(context: command.Context, args: go_flags.Parsed) -> None:
  command.check_count(args.rest, 3, 3)
  lm, options = _open(context, args)
  scores, gradients = lm.Gradient(args.rest[1], args.rest[2], options)
  row = [_numbers(scores)]
  for _, values in sorted(gradients.items()):
    more = ', ...' if len(values) > _MAX_GRADIENT_VALUES else ''
    row.append(_numbers(values[:_MAX_GRADIENT_VALUES]) + more)
  header = ['Score', *sorted(gradients)]
  print(text_table.render(header, [row]), end='')


_FLAGS = (
  go_flags.Flag('extra', '', extra_flag.FLAG_HELP),
  go_flags.Flag(
    'proxy', '', 'Send the request to this host:port, whatever is there.'
  ),
)


def _command(
  name: str,
  synopsis: str,
  arguments: str,
  run: Callable[[command.Context, go_flags.Parsed], None],
  flags: Sequence[go_flags.Flag] = (),
) -> command.Command:
  usage = f'{name} [flags] {arguments}'
  return command.Command(name, synopsis, usage, run, (*_FLAGS, *flags))


COMMANDS = (
  _command(
    'lm.embed',
    'Compute the embedding of a text.',
    '<model id> <text>',
    _embed,
  ),
  _command(
    'lm.generate',
    'Continue a text.',
    '<model id> <text, or - for stdin>',
    _generate,
    (
      go_flags.Flag('stream', False, 'Show the text while it grows.'),
      go_flags.Flag('terse', False, 'Print texts only, best first.'),
      go_flags.Flag('n', 0, 'Print at most so many results; 0 for all.'),
    ),
  ),
  _command(
    'lm.gradient',
    'Compute gradients of the log-probability of a suffix.',
    '<model id> <prefix> <suffix>',
    _gradient,
  ),
  _command(
    'lm.score',
    'Compute log-probabilities of suffixes.',
    '<model id> <prefix> <suffix> ...',
    _score,
  ),
)
