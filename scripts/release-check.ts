/**
 * Checks that the project owns every name that a release needs: `npm run release:check`.
 * It asks with the clients that this machine has. Exit code 0: each name is ours or free. 1: a name is taken,
 * or a step of RELEASING.md is open. 3: a name could not be checked.
 */
import { resolveNs } from 'node:dns/promises';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { ROOT, run } from './command.ts';
import { VERSION } from './versions.ts';

type NameState = 'ours' | 'free' | 'taken' | 'open' | 'not asked';

interface NameAnswer {
  readonly state: NameState;
  readonly detail: string;
}

interface Owned {
  readonly what: string;
  readonly ask: () => Promise<NameAnswer>;
}

const REPOSITORY = (readJson('package.json') as { repository?: { url?: string } }).repository?.url ?? '';
const ASK_SECONDS = 60;

const NAMES: readonly Owned[] = [
  ...['rookery', '@rookery/client', '@rookery/runtime'].map(name => ({ what: `npm ${name}`, ask: () => askNpm(name) })),
  { what: 'PyPI rookery', ask: () => askPypi('rookery') },
  { what: 'Maven Central dev.rookery:rookery-runtime', ask: () => askMaven('dev.rookery:rookery-runtime') },
  { what: 'Go rookery.dev/runtime', ask: () => askGo('rookery.dev/runtime') },
  { what: 'image rookery', ask: askImage },
  // The Java group and the Go path need rookery.dev. Labels and annotations of pods need rookery.io.
  { what: 'domain rookery.dev', ask: () => askDomain('rookery.dev') },
  { what: 'domain rookery.io', ask: () => askDomain('rookery.io') },
  { what: 'address of the repository in package.json', ask: async () => present(REPOSITORY !== '', REPOSITORY) },
  {
    what: 'an owner in .github/CODEOWNERS',
    ask: async () => present(/^[^#\n].*@/m.test(read('.github/CODEOWNERS')), ''),
  },
  {
    what: `a heading for ${VERSION} in CHANGELOG.md`,
    ask: async () =>
      present(new RegExp(`^## \\[?v?${VERSION.replaceAll('.', '\\.')}\\b`, 'm').test(read('CHANGELOG.md')), ''),
  },
];

/**
 * Checks an npm name. An unreachable registry may look as if the name were free, so an existing package is
 * requested first.
 */
async function askNpm(name: string): Promise<NameAnswer> {
  const known = await ask('npm', ['view', 'tsx', 'name']);
  if (known.code !== 0) return notAsked('npm view', known.output);
  const { code, output } = await ask('npm', ['view', name, 'repository.url', 'maintainers', '--json']);
  if (/\bE404\b/.test(output)) return { state: 'free', detail: 'no package has this name' };
  if (code !== 0) return notAsked('npm view', output);
  return owner(output.replaceAll(/\s+/g, ' ').trim());
}

/**
 * Checks a PyPI name. pip prints the same error for a free name and for an unreachable index, so it requests
 * an existing package first.
 */
async function askPypi(name: string): Promise<NameAnswer> {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-release-'));
  const download = (wanted: string) =>
    ask('python3', [
      '-m',
      'pip',
      'download',
      '--quiet',
      '--no-deps',
      '--no-binary',
      ':none:',
      '--dest',
      directory,
      wanted,
    ]);
  try {
    const known = await download('six==1.17.0');
    if (known.code !== 0) return notAsked('pip download', known.output);
    const { code, output } = await download(name);
    if (code === 0) return owner('a package with this name exists');
    return /No matching distribution/.test(output)
      ? { state: 'free', detail: 'no package has this name' }
      : notAsked('pip download', output);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

async function askMaven(coordinates: string): Promise<NameAnswer> {
  const { code, output } = await ask('mvn', ['-B', '-q', 'dependency:get', `-Dartifact=${coordinates}:LATEST`]);
  if (code === 0) return owner('an artifact with these coordinates exists');
  return /Could not find artifact|No versions available/.test(output)
    ? { state: 'free', detail: 'no artifact has these coordinates; the group needs the domain' }
    : notAsked('mvn dependency:get', output);
}

async function askGo(path: string): Promise<NameAnswer> {
  const { code, output } = await ask('go', ['list', '-m', `${path}@latest`]);
  if (code === 0) return owner(output.trim());
  return /unrecognized import path|404 Not Found/i.test(output)
    ? { state: 'open', detail: 'the domain does not lead to the module' }
    : notAsked('go list', output);
}

async function askImage(): Promise<NameAnswer> {
  return { state: 'not asked', detail: 'choose the registry and the name of the image first' };
}

async function askDomain(domain: string): Promise<NameAnswer> {
  try {
    // Without DNS every domain looks free, so a known domain is resolved first.
    await resolveNs('example.org');
  } catch (error) {
    return { state: 'not asked', detail: `this machine has no DNS (${(error as NodeJS.ErrnoException).code})` };
  }
  try {
    return owner(`served by ${(await resolveNs(domain)).join(', ')}`);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === 'ENOTFOUND' || code === 'ENODATA'
      ? { state: 'free', detail: `no name servers (${code}); a registrar knows whether it can be had` }
      : { state: 'not asked', detail: `DNS answers ${code ?? String(error)}` };
  }
}

/** Returns `ours` if the found text contains the repository's address, and `taken` otherwise. */
function owner(detail: string): NameAnswer {
  const isOurs = REPOSITORY !== '' && detail.includes(REPOSITORY.replace(/^git\+|\.git$/g, ''));
  return { state: isOurs ? 'ours' : 'taken', detail };
}

function present(is: boolean, detail: string): NameAnswer {
  return is ? { state: 'ours', detail } : { state: 'open', detail: 'missing' };
}

function notAsked(client: string, output: string): NameAnswer {
  const lines = stripVTControlCharacters(output).split('\n');
  return { state: 'not asked', detail: `${client}: ${lines.map(line => line.trim()).find(Boolean) ?? 'no answer'}` };
}

function ask(program: string, args: readonly string[]) {
  return run(program, args, { capture: true, seconds: ASK_SECONDS, cwd: tmpdir() });
}

function read(file: string): string {
  return existsSync(join(ROOT, file)) ? readFileSync(join(ROOT, file), 'utf8') : '';
}

function readJson(file: string): unknown {
  return JSON.parse(read(file));
}

const answers: NameAnswer[] = [];
for (const { what, ask: askOne } of NAMES) {
  const answer = await askOne();
  answers.push(answer);
  console.log(`${answer.state.padEnd(10)} ${what}${answer.detail === '' ? '' : `: ${answer.detail}`}`);
}
const has = (...states: readonly NameState[]) => answers.some(({ state }) => states.includes(state));
if (has('taken', 'open')) process.exitCode = 1;
else if (has('not asked')) process.exitCode = 3;
console.log(process.exitCode ? 'Do not release yet: RELEASING.md.' : 'Every name is ours or free.');
