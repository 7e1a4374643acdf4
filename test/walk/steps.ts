import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import { Served } from '../../scripts/served.ts';
import type { Laptop, Said } from './laptop.ts';
import type { Program } from './programs.ts';

export interface Step extends Said {
  readonly program: string;
  readonly command: string;
}

const SECRET = 'a secret that is at least 32 bytes long';
const TENANT = 'default';

/**
 * Starts a service with authentication at the address that the laptop reaches, and returns it with a
 * developer's token.
 */
export async function serveFor(
  laptop: Laptop,
): Promise<{ server: Served; token: string; remove: () => Promise<void> }> {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-walk-'));
  const secretFile = join(directory, 'secret');
  writeFileSync(secretFile, SECRET, { mode: 0o600 });
  const auth = ['--set', 'enable_func_token_auth=true', '--set', `jwt.secretFile=${secretFile}`];
  try {
    const server = await Served.start({ args: ['--host', laptop.server, '--meta-host', laptop.server, ...auth] });
    const token = await new SignJWT({ role: 'developer' })
      .setProtectedHeader({ alg: 'HS256' })
      .setSubject(TENANT)
      .setExpirationTime('2h')
      .sign(Buffer.from(SECRET));
    return {
      server,
      token,
      async remove() {
        await server.remove();
        rmSync(directory, { recursive: true, force: true });
      },
    };
  } catch (error) {
    rmSync(directory, { recursive: true, force: true });
    throw error;
  }
}

/** Logs the laptop in. Fails when the login fails. */
export async function login(laptop: Laptop, { server, token }: { server: Served; token: string }): Promise<Step> {
  laptop.write('token', token);
  const command = `rookery login ${server.frontendUrl} --meta-address ${server.metaUrl} --token-file token`;
  return checked({ program: '', command, ...(await laptop.run(command)) }, '');
}

/** Yields each step from `init` to `delete`. Fails at the first step with an unexpected result. */
export async function* walk(laptop: Laptop, server: Served, program: Program, runtime?: string): AsyncGenerator<Step> {
  const { name, template, prepare, build, call, first, second, logs = '', edit } = program;
  const step = async (command: string, expected: string, directory = name) =>
    checked({ program: name, command, ...(await laptop.run(command, directory)) }, expected);
  yield await step(`rookery init ${template} ${name}`, 'rookery deploy', '.');
  prepare?.(laptop, name);
  if (runtime !== undefined) laptop.edit(`${name}/rookery.yaml`, /runtime: python.*/, `runtime: ${runtime}`);
  if (build !== undefined) yield await step(build, '');
  yield await step('rookery deploy', 'created');
  yield await step(call(server.frontendUrl), first);
  yield await step(`sed -i "s/${edit.from}/${edit.to}/" ${edit.file}`, '');
  if (build !== undefined) yield await step(build, '');
  yield await step('rookery deploy', 'replaced (code)');
  yield await step(call(server.frontendUrl), second);
  yield await step(`rookery logs ${name}`, logs);
  yield await step(`rookery agent delete ${name}`, '');
  yield await step('rookery agent list -q | wc -l', '0');
}

function checked(step: Step, expected: string): Step {
  if (step.code === 0 && step.out.includes(expected)) return step;
  throw new Error(
    `${step.command}: ended with ${step.code}, and ${JSON.stringify(expected)} was expected in:\n${step.out}`,
  );
}
