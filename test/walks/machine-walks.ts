import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { ROOT } from '../../scripts/command.ts';
import { onCleanMachine } from '../parts/clean-machine.ts';
import { type Command, readPackage, readTryIt, readUserCommands } from './readme.ts';
import { interrupt, onTerminal, other, type Step, typed, unseen, walkScript } from './shell.ts';
import { ANSWER, type Transcript } from './transcript.ts';

export interface MachineWalk {
  readonly who: 'root' | 'ada';
  readonly init: 'script' | 'systemd';
  readonly steps: readonly Step[];
  /** Bash commands that root runs before the walk, in addition to the preparation of every machine. */
  readonly before?: string;
}

const WALK_S = 900;
const AUTHORITIES = '/etc/ssl/certs/ca-certificates.crt';
const CLONE: readonly Step[] = [typed('git clone --quiet /opt/rookery.git rookery'), typed('cd rookery')];
const { demo, serve, alias, commands } = readTryIt();

/** Steps from README.md to the first answer in a fresh clone, as an ordinary user. */
export const freshClone = (): MachineWalk => ({
  who: 'ada',
  init: 'script',
  steps: [
    ...CLONE,
    typed(demo, { expected: ANSWER }),
    other(serve),
    typed(alias),
    ...tryIt(commands),
    interrupt,
    unseen(`cd && rm -rf rookery`),
    reportLeft(),
  ],
});

/** Steps with the npm package, which root installs like Node.js and an ordinary user runs. */
export function npmPackage(): MachineWalk {
  const { build, start } = readPackage('npm run package:npm');
  return {
    who: 'root',
    init: 'script',
    steps: [
      ...CLONE,
      typed(build),
      ...start.slice(0, -1).map(line => typed(line)),
      other(start.at(-1) ?? ''),
      ...tryIt(commands),
      interrupt,
      typed('npm uninstall --global rookery'),
      unseen('cd && rm -rf rookery /var/lib/rookery'),
      reportLeft(),
    ],
  };
}

/** Steps with the Debian package: root's command line and the service that systemd has started. */
export function debianService(): MachineWalk {
  const { build, start } = readPackage('npm run package:deb');
  return {
    who: 'root',
    init: 'systemd',
    steps: [
      ...CLONE,
      typed(build),
      ...start.map(line => typed(line)),
      ...tryIt(commands.map(withToken('$(cat /var/lib/rookery/local-token)'))),
      typed('apt purge rookery'),
      // The page says that the data stays after the purge.
      unseen('cd && rm -rf rookery /var/lib/rookery'),
      reportLeft(),
    ],
  };
}

/** Steps with the Debian package, installed by root, and the own service of an ordinary user. */
export function debianUser(): MachineWalk {
  const { build, start } = readPackage('npm run package:deb');
  return {
    who: 'ada',
    init: 'systemd',
    before: ['cd /root && git clone --quiet /opt/rookery.git rookery && cd rookery', build, ...start].join('\n'),
    steps: [
      // Root's service rejects other users.
      typed('rookery agent list', { fails: true }),
      ...readUserCommands().map(line => (line.startsWith('rookery serve') ? other(line) : typed(line))),
      ...tryIt(commands.map(atPort(8889))),
      interrupt,
      unseen('rm -rf examples .local'),
      // Files that root has installed stay.
      reportLeft('-user ada'),
    ],
  };
}

/**
 * Runs a walk on its own Debian 12, which has Node.js, npm, git and curl, and only the repository of Rookery.
 */
export async function walkOnMachine({ who, init, steps, before = '' }: MachineWalk, seen: Transcript): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-walks-'));
  try {
    chmodSync(directory, 0o755);
    const bare = join(directory, 'rookery.git');
    execFileSync('git', ['clone', '--quiet', '--bare', ROOT, bare]);
    writeFileSync(join(directory, 'walk.sh'), walkScript(steps));
    const npm = dirname(dirname(realpathSync(execFileSync('which', ['npm'], { encoding: 'utf8' }).trim())));
    await onCleanMachine({
      init,
      network: 'outward',
      timeoutS: WALK_S,
      onOutput: text => seen.add(text),
      brought: {
        '/usr/local/bin/node': process.execPath,
        '/usr/local/lib/node_modules/npm': npm,
        '/opt/rookery.git': bare,
        '/opt/walk.sh': join(directory, 'walk.sh'),
        ...(existsSync(AUTHORITIES) ? { '/opt/authorities.crt': AUTHORITIES } : {}),
      },
      script: [
        PREPARE,
        before === '' ? '' : `(\n${before}\n) >/tmp/before.log 2>&1 || { cat /tmp/before.log; exit 1; }`,
        WALK[who],
      ].join('\n'),
    });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

export function tryIt(lines: readonly Command[]): readonly Step[] {
  return lines.map(({ line, expected }) => typed(line, { expected }));
}

/**
 * Returns a function that adds a token header to curl commands, as the page says for a service with a token.
 */
export function withToken(token: string): (command: Command) => Command {
  return command => ({ ...command, line: command.line.replace(/^curl /, `curl -H "X-Auth: ${token}" `) });
}

/** Returns a function that replaces the port of the page with the port of another service. */
function atPort(port: number): (command: Command) => Command {
  return command => ({ ...command, line: command.line.replace('localhost:8888', `localhost:${port}`) });
}

/** Script that installs the programs that the page requires and preconfigures the answers for apt. */
const PREPARE = `
export HOME=/root LANG=C.UTF-8 TERM=xterm DEBIAN_FRONTEND=noninteractive
[ ! -e /opt/authorities.crt ] || export NODE_EXTRA_CA_CERTS=/opt/authorities.crt npm_config_cafile=/opt/authorities.crt PIP_CERT=/opt/authorities.crt
echo 'APT::Get::Assume-Yes "true"; Binary::apt::DPkg::Progress-Fancy "0";' >/etc/apt/apt.conf.d/90walk
for name in npm npx; do ln -s "../lib/node_modules/npm/bin/$name-cli.js" "/usr/local/bin/$name"; done
{ apt-get update && apt-get install --no-install-recommends git curl; } >/tmp/prepare.log 2>&1 || { cat /tmp/prepare.log; exit 1; }
git config --system --add safe.directory '*'
useradd --create-home --shell /bin/bash ada
rm -f /tmp/prepare.log
`;

const WALK = {
  root: `cd /root\n${onTerminal('/opt/walk.sh')}`,
  ada: `cd /home/ada\nexport HOME=/home/ada\nrm -f /tmp/before.log\nsetpriv --reuid ada --regid ada --init-groups bash -c "${onTerminal('/opt/walk.sh')}"`,
};

/**
 * Returns a step that lists residue of Rookery: running processes, and files in addition to the provided
 * ones.
 */
function reportLeft(whose: '' | '-user ada' = ''): Step {
  return unseen(`
rm -rf "$other_dir"
for each in $(find /proc -mindepth 1 -maxdepth 1 -name '[0-9]*' ${whose} 2>/dev/null); do
  grep -qs rookery "$each/cmdline" && ! grep -qs walk.sh "$each/cmdline" && echo "left: process $(tr '\\0' ' ' <"$each/cmdline")"
done
find / -xdev \\( -path /proc -o -path /sys -o -path /opt -o -path /root/.npm -o -path '/home/*/.npm' \\) -prune -o -iname '*rookery*' ${whose} -printf 'left: %p\\n' 2>/dev/null
# The compiler of the scripts, tsx, keeps its cache from run to run; systemd makes the others.
find /tmp -mindepth 1 -maxdepth 1 ! -name 'tsx-*' ! -name '.*-unix' ! -name 'systemd-private-*' ${whose} -printf 'left: %p\\n'
`);
}
