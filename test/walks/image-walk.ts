import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT } from '../../scripts/command.ts';
import { DockerDaemon } from '../parts/docker.ts';
import { tryIt, withToken } from './machine-walks.ts';
import { readImageAlias, readPackage, readTryIt } from './readme.ts';
import { interrupt, onTerminal, other, type Step, typed, unseen, walkScript } from './shell.ts';
import type { Transcript } from './transcript.ts';

/** Returns the steps for the image: clone and build it, run a container, use the command line inside. */
export function imageSteps(): readonly Step[] {
  const { build, start } = readPackage('scripts/image.sh');
  const [up = ''] = start;
  const token = '$(docker logs rookery | sed -n "s/^token: //p")';
  return [
    typed(`git clone --quiet ${ROOT} rookery`),
    typed('cd rookery'),
    typed(build),
    other(up),
    typed(readImageAlias()),
    ...tryIt(readTryIt().commands.map(withToken(token))),
    interrupt,
    unseen("docker ps --all --format 'left: container {{.Names}}'; docker volume ls --format 'left: volume {{.Name}}'"),
    unseen('rm -rf "$other_dir" ../rookery'),
  ];
}

/** Runs the walk on this machine with its own Docker daemon, whose files are removed with it. */
export async function walkTheImage(steps: readonly Step[], seen: Transcript): Promise<void> {
  const home = mkdtempSync(join(tmpdir(), 'rookery-home-'));
  const script = join(home, 'walk.sh');
  try {
    await using daemon = await DockerDaemon.start();
    writeFileSync(script, walkScript(steps));
    const environment = { ...process.env, ...daemon.environment, DOCKER_CONTEXT: '', HOME: home };
    const child = spawn('sh', ['-c', onTerminal(script)], {
      cwd: home,
      env: environment,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [child.stdout, child.stderr]) stream.on('data', chunk => seen.add(String(chunk)));
    await once(child, 'close');
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}
