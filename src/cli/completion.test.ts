import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { cli } from '../../test/parts/cli.ts';
import { describeWith } from '../../test/probe.ts';

/** Words typed before the tab key, and the completions that the shell must offer. */
const TYPED: Readonly<Record<string, readonly string[]>> = {
  'rookery ag': ['agent'],
  'rookery agent rest': ['restart'],
  'rookery agent exec --wo': ['--workdir'],
  'rookery token create --ro': ['--role'],
  'rookery completion f': ['fish'],
  'rookery job schedule d': ['delete'],
  'rookery agent get h': ['hello', 'host'],
  'rookery logs h': ['hello', 'host'],
  'rookery function get ': ['0@demo@fn'],
  'rookery secret rm s': ['sec'],
};

/** Program `rookery` that prints fixed names. */
const NAMES = `#!/bin/sh
[ "$1" = complete-names ] || exit 1
case $2 in
  agent) echo hello; echo host ;;
  function) echo 0@demo@fn ;;
  secret) echo sec ;;
esac
`;

/** Presses the tab key in an interactive zsh. Its `compadd` also writes each match into a file. */
const ZSH = `
zmodload zsh/zpty
cd $1
exists() { until [[ -e $1 ]]; do sleep 0.05; done }
zpty z zsh -f -i
zpty -w -n z "source ./setup"$'\\n'
integer n=0
while IFS= read -r line; do
  exists reads.$(( ++n ))
  : > hits
  zpty -w -n z "$line"$'\\t\\C-u\\n'
  exists reads.$(( n + 1 ))
  for match in \${(fu)"$(< hits)"}; do print -r -- "$line|$match"; done
done < typed
zpty -d z
`;
/** Set-up of the interactive zsh. The line editor calls `zle-line-init` when it begins to read a line. */
const ZSH_SETUP = `
PS1= LISTMAX=10000
setopt no_beep
autoload -Uz compinit
compinit -u -D
source ./zsh
integer reads=0
zle-line-init() { : > reads.$(( ++reads )) }
zle -N zle-line-init
compadd() {
  if [[ " $* " != *' '-[OAD]' '* ]]; then
    local -a matches_of_test
    builtin compadd -A matches_of_test "$@"
    print -l -r -- $matches_of_test >> hits
  fi
  builtin compadd "$@"
}
`;
const FISH = `
cd $argv[1]
source ./fish
while read --local line
  for match in (complete -C "$line")
    echo "$line|"(string split -f 1 \\t -- $match)
  end
end < typed
`;

const TIMEOUT_MS = 120_000;
let directory: string;
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-completion-'));
  writeFileSync(join(directory, 'rookery'), NAMES);
  chmodSync(join(directory, 'rookery'), 0o755);
  writeFileSync(join(directory, 'typed'), Object.keys(TYPED).join('\n').concat('\n'));
  writeFileSync(join(directory, 'setup'), ZSH_SETUP);
  for (const shell of ['zsh', 'fish']) {
    writeFileSync(join(directory, shell), (await cli(['completion', shell])).out);
  }
});
afterAll(() => rmSync(directory, { recursive: true }));

function offered(shell: string, args: readonly string[], script: string): Readonly<Record<string, readonly string[]>> {
  const file = join(directory, `${shell}.script`);
  writeFileSync(file, script);
  const { stdout, stderr } = spawnSync(shell, [...args, file, directory], {
    env: { PATH: `${directory}:${process.env.PATH}`, HOME: directory, TERM: 'dumb' },
    encoding: 'utf8',
    timeout: TIMEOUT_MS - 10_000,
  });
  const lines = stdout.split('\n').filter(line => line.includes('|'));
  const matches = (typed: string) =>
    lines.filter(line => line.startsWith(`${typed}|`)).map(line => line.slice(typed.length + 1));
  expect(stderr).toBe('');
  return Object.fromEntries(Object.keys(TYPED).map(typed => [typed, matches(typed).sort()]));
}

describeWith(['zsh'], 'completion of zsh', () => {
  test(
    'the completion of zsh offers commands, options and names when the tab key is pressed',
    () => {
      expect(offered('zsh', ['-f'], ZSH)).toEqual(TYPED);
    },
    TIMEOUT_MS,
  );
});

describeWith(['fish'], 'completion of fish', () => {
  test(
    'the completion of fish offers commands, options and names when the tab key is pressed',
    () => {
      expect(offered('fish', ['--no-config'], FISH)).toEqual(TYPED);
    },
    TIMEOUT_MS,
  );
});
