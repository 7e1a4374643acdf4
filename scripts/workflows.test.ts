import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { ROOT } from './command.ts';

interface Workflow {
  readonly jobs: Readonly<
    Record<string, { readonly steps: readonly { readonly uses?: string; readonly run?: string }[] }>
  >;
}

const GITHUB = join(ROOT, '.github');
const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: object };
const workflows = readdirSync(join(GITHUB, 'workflows')).map(name => ({
  name,
  workflow: parse(readFileSync(join(GITHUB, 'workflows', name), 'utf8')) as Workflow,
}));

test.each(workflows)('$name runs only scripts that package.json has', ({ workflow }) => {
  const commands = Object.values(workflow.jobs).flatMap(({ steps }) => steps.map(({ run }) => run ?? ''));
  const named = commands.flatMap(command => [...command.matchAll(/npm run ([\w:]+)/g)].map(([, name]) => name));
  expect(named.filter(name => !Object.hasOwn(scripts, name ?? ''))).toEqual([]);
});

test.each(workflows)('$name uses only actions with a version', ({ workflow }) => {
  const used = Object.values(workflow.jobs).flatMap(({ steps }) => steps.map(({ uses }) => uses ?? ''));
  expect(used.filter(name => name !== '' && !/^[\w-]+\/[\w-]+@(?:v\d+|[0-9a-f]{40})$/.test(name))).toEqual([]);
});

test('every issue form is valid YAML and has a body', () => {
  for (const name of readdirSync(join(GITHUB, 'ISSUE_TEMPLATE')).filter(each => each !== 'config.yml')) {
    expect(parse(readFileSync(join(GITHUB, 'ISSUE_TEMPLATE', name), 'utf8')), name).toMatchObject({
      name: expect.any(String),
      body: expect.arrayContaining([expect.objectContaining({ type: 'textarea' })]),
    });
  }
});
