/**
 * Asks the package registry for known weaknesses of the dependencies in the lockfile: `npm run audit`.
 * Exit code 0: there are none. 1: there are some, one line each. 3: the registry did not answer, so nothing
 * is known.
 */
import { ROOT, run } from './command.ts';

const UNKNOWN = 3;

interface Advisories {
  readonly vulnerabilities?: Readonly<
    Record<string, { readonly severity: string; readonly range: string; readonly fixAvailable: unknown }>
  >;
  readonly message?: string;
}

/** Parses the output of npm. Returns the reason as `message` if the output is not JSON. */
function read(output: string): Advisories {
  const start = output.indexOf('{');
  try {
    return JSON.parse(output.slice(start)) as Advisories;
  } catch {
    return { message: output.trim().split('\n').at(-1) ?? 'npm printed nothing' };
  }
}

const { output } = await run('npm', ['audit', '--json', '--loglevel=silent'], { cwd: ROOT, capture: true });
const { vulnerabilities, message } = read(output);
if (vulnerabilities === undefined) {
  const why = (message ?? 'no reason given').replaceAll(/https?:\/\/\S+/g, 'the registry');
  console.log(`advisories are not known: the registry did not answer (${why})`);
  console.log('Run this again where the registry answers, before the release.');
  process.exitCode = UNKNOWN;
} else {
  const found = Object.entries(vulnerabilities);
  for (const [name, { severity, range, fixAvailable }] of found) {
    console.log(`${severity}: ${name} ${range}${fixAvailable === false ? '' : ' (a newer version mends it)'}`);
  }
  console.log(`${found.length} dependencies with known weaknesses`);
  process.exitCode = found.length > 0 ? 1 : 0;
}
