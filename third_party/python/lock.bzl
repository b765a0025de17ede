"""Reads a lock file: pinned, hashed requirements with `# via` annotations."""

def label_name(package):
    """The Bazel name of a PyPI package: `Typing.Extensions-x` -> `typing_extensions_x`."""
    return package.lower().replace("-", "_").replace(".", "_")

def parse_lock(text):
    """Parses what `uv pip compile` or `pip-compile` wrote.

    Args:
      text: the lock file's content.

    Returns:
      A dict from label name to a struct of `requirement` (the pinned
      requirement with its hashes, one line of a requirements file) and `needs`
      (sorted label names of everything it needs, directly or not).
    """
    requirements = {}
    users = {}
    package = None
    for line in text.split("\n"):
        word = line.strip()
        if line and line[0] not in " #" and "==" in line:
            pin = word.rstrip("\\ ")
            package = label_name(pin.split("==")[0].split("[")[0])
            requirements[package] = [pin]
            users[package] = []
        elif word.startswith("--hash="):
            requirements[package].append(word.rstrip("\\ "))
        elif package and word.startswith("#"):
            user = word[1:].strip()
            if user.startswith("via"):
                user = user[len("via"):].strip()

            # "-r file" and "-c file" name no package.
            if user and user[0] != "-":
                users[package].append(label_name(user.split("[")[0]))

    for package, lines in requirements.items():
        if len(lines) < 2:
            fail("The lock pins %s without a hash." % lines[0])
    needs = _needs(users)
    return {
        package: struct(
            needs = sorted(needs[package]),
            requirement = " ".join(lines),
        )
        for package, lines in requirements.items()
    }

def _needs(users):
    """Turns who-uses-it into the transitive what-it-needs, cycles included."""
    needs = {package: {} for package in users}
    for package, its_users in users.items():
        for user in its_users:
            if user in needs:
                needs[user][package] = True

    # Each round follows one more edge; Starlark has no while and no recursion.
    for _ in range(len(users)):
        grown = False
        for package, known in needs.items():
            found = dict(known)
            for need in known:
                found.update(needs[need])
            found.pop(package, None)
            if len(found) > len(known):
                needs[package] = found
                grown = True
        if not grown:
            break
    return needs
