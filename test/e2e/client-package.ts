import { cpSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect } from 'vitest';
import { bin, ROOT, run } from '../../scripts/command.ts';

/**
 * Builds the package of the client outside of the clone, installs it below `directory` and returns where.
 * The build and the installation have only the packages that its manifest names.
 */
export async function installClient(directory: string): Promise<string> {
  const project = join(directory, 'project');
  const sources = join(ROOT, 'clients/typescript');
  for (const name of ['src', 'package.json', 'tsconfig.json', 'LICENSE', 'README.md']) {
    cpSync(join(sources, name), join(project, name), { recursive: true });
  }
  const { dependencies, devDependencies } = manifestOf(project);
  link(project, Object.keys({ ...dependencies, ...devDependencies }));
  mkdirSync(join(project, 'node_modules/.bin'));
  symlinkSync(bin('tsc'), join(project, 'node_modules/.bin/tsc'));
  const options = { cwd: project, capture: true } as const;
  const packed = await run('npm', ['pack', '--silent', '--pack-destination', directory], options);
  expect(packed).toMatchObject({ code: 0 });
  const target = join(directory, 'node_modules/@rookery/client');
  mkdirSync(target, { recursive: true });
  const archive = join(directory, packed.output.trim().split('\n').at(-1) ?? '');
  const unpacked = await run('tar', ['-xzf', archive, '--strip-components=1', '-C', target], { capture: true });
  expect(unpacked).toEqual({ code: 0, output: '' });
  link(directory, Object.keys(manifestOf(target).dependencies));
  return target;
}

function manifestOf(directory: string) {
  const text = readFileSync(join(directory, 'package.json'), 'utf8');
  return JSON.parse(text) as { readonly dependencies: object; readonly devDependencies: object };
}

/** Gives a directory these packages of the clone. */
function link(directory: string, names: readonly string[]): void {
  for (const name of names) {
    const path = join(directory, 'node_modules', name);
    mkdirSync(dirname(path), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', name), path);
  }
}
