import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Served } from '../../scripts/served.ts';

/**
 * The supported major versions. `.ci/run` installs each; other runs test only the version that runs the
 * tests.
 */
const NODES = ['20', '22', '24'].flatMap(version => {
  const home = process.env[`NODE_HOME_${version}`];
  if (home !== undefined) return [{ version, node: join(home, 'bin/node') }];
  return process.versions.node.startsWith(`${version}.`) ? [{ version, node: process.execPath }] : [];
});
const CODE = [
  '--code',
  join(ROOT, 'examples/hello'),
  '--handler',
  'handler.handle',
  '--initializer',
  'handler.initialize',
];

describe.each(NODES)('the built service on Node $version', ({ version, node }) => {
  test('the service creates, invokes and deletes an agent and a function', async () => {
    const python = (await findInterpreters()).at(-1);
    const server = await Served.start({ node });
    try {
      const addresses = ['--address', server.frontendUrl, '--meta-address', server.metaUrl];
      const rookery = async (...args: readonly string[]) => {
        const program = [join(ROOT, 'dist/main.js'), ...args, ...addresses];
        const { code, output } = await run(node, program, { capture: true });
        expect(code, output).toBe(0);
        return output;
      };
      expect((await run(node, ['--version'], { capture: true })).output).toMatch(new RegExp(`^v${version}\\.`));
      await rookery('agent', 'create', 'hello', ...CODE);
      expect(await rookery('agent', 'invoke', 'hello', '{"name": "Ada"}')).toContain('"Hello, Ada!"');
      await rookery('agent', 'delete', 'hello');
      expect(await rookery('agent', 'list', '--json')).not.toContain('hello');
      const runtime = `python${python?.version}`;
      await rookery('function', 'register', 'demo@hello', '--kind', 'faas', '--runtime', runtime, ...CODE);
      expect(await rookery('function', 'invoke', 'demo@hello', '{"name": "Grace"}')).toContain('"Hello, Grace!"');
      await rookery('function', 'delete', 'demo@hello');
    } finally {
      await server.remove();
    }
  }, 180_000);
});
