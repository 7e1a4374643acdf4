import { chmodSync, cpSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Served } from '../../scripts/served.ts';
import { lambdaPackages } from './packages.ts';

/** Packages of PyPI that `awslambdaric` consists of. */
const RIC = /^(awslambdaric|simplejson|snapshot_restore_py|runtime_client)/;

/** Writes a directory of code. Files named `bootstrap` are executable. */
export function writeCode(directory: string, files: Readonly<Record<string, string>>, hasRic = false): string {
  mkdirSync(directory, { recursive: true });
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(directory, name), text);
    if (name === 'bootstrap') chmodSync(join(directory, name), 0o755);
  }
  if (hasRic) {
    const lib = join(lambdaPackages.homeOf('python'), 'lib');
    const packages = join(lib, readdirSync(lib)[0] ?? '', 'site-packages');
    for (const name of readdirSync(packages).filter(each => RIC.test(each))) {
      cpSync(join(packages, name), join(directory, name), { recursive: true });
    }
  }
  return directory;
}

/** Registers a function of the runtime `lambda`. */
export async function register(
  { metaUrl }: Served,
  name: string,
  codePath: string,
  changes: Readonly<Record<string, unknown>> = {},
): Promise<void> {
  const answer = await fetch(`${metaUrl}/serverless/v1/functions`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({
      ...{ name: `0@default@${name}`, runtime: 'lambda', handler: 'app.handler', kind: 'faas', storageType: 'local' },
      ...{ cpu: 500, memory: 256, timeout: 60, codePath, minInstance: 0, maxInstance: 1 },
      ...changes,
    }),
  });
  if (answer.status !== 200) throw new Error(`register answered ${answer.status}: ${await answer.text()}`);
}
