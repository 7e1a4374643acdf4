import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../../scripts/command.ts';

/** A command of README.md and the output that the page shows. */
export interface Command {
  readonly line: string;
  /** Null when the page shows no output. */
  readonly expected: string | null;
}

/** The commands of README.md under "Try it". */
export interface TryIt {
  readonly demo: string;
  /** The command for the first terminal. */
  readonly serve: string;
  /** Defines the command `rookery` in the second terminal. */
  readonly alias: string;
  readonly commands: readonly Command[];
}

/** A row of the table under "Install". */
export interface Package {
  readonly build: string;
  /** The last command may be a service that stays in the foreground. */
  readonly start: readonly string[];
}

const README = readFileSync(join(ROOT, 'README.md'), 'utf8');

export function readTryIt(): TryIt {
  const section = sectionOf('Try it');
  const [demo, , alias, ...commands] = [...section.matchAll(/^```sh.*\n([\s\S]*?)^```$/gm)]
    .flatMap(([, block = '']) => block.trimEnd().split('\n'))
    .map(toCommand);
  const serve = /start a service with `([^`]+)`/.exec(section)?.[1];
  if (demo === undefined || alias === undefined || serve === undefined || commands.length === 0)
    throw new Error('README.md, "Try it": the demo, the service, the alias or the commands are missing');
  return { demo: demo.line, serve, alias: alias.line, commands };
}

/** Returns the row whose build command is `build`. */
export function readPackage(build: string): Package {
  const cells = sectionOf('Install')
    .split('\n')
    .filter(line => line.startsWith('| '))
    .map(line => line.split('|').map(cell => [...cell.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code)))
    .find(([, , builds]) => builds?.[0] === build);
  const start = cells?.[3] ?? [];
  if (start.length === 0) throw new Error(`README.md, "Install": no row has ${build} and a command that starts it`);
  return { build, start };
}

/** Returns the alias for the command line in the container. */
export function readImageAlias(): string {
  const alias = /`(alias rookery="docker [^`]+)`/.exec(sectionOf('Install'))?.[1];
  if (alias === undefined) throw new Error('README.md, "Install": the alias for the image is missing');
  return alias;
}

/** Returns the commands of docs/start/install.md for an ordinary user, up to the first agent. */
export function readUserCommands(): readonly string[] {
  const page = readFileSync(join(ROOT, 'docs/start/install.md'), 'utf8');
  const block = /^### Use it as an ordinary user$[\s\S]*?^```sh.*\n([\s\S]*?)^```$/m.exec(page)?.[1];
  if (block === undefined) throw new Error('docs/start/install.md has no commands for an ordinary user');
  const lines = block
    .trimEnd()
    .split('\n')
    .map(line => toCommand(line).line);
  return lines.slice(
    0,
    lines.findIndex(line => line.includes('agent create')),
  );
}

function sectionOf(title: string): string {
  const [, section] = README.split(new RegExp(`^## ${title}$`, 'm'));
  if (section === undefined) throw new Error(`README.md has no section "${title}"`);
  return section.split(/^## /m)[0] ?? '';
}

function toCommand(text: string): Command {
  const [line = '', expected = null] = text.split(/\s+# → /);
  return { line: line.replace(/\s{2,}# .*$/, ''), expected };
}
