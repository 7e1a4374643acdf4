import { join, resolve } from 'node:path';
import { describeRuntime, type RuntimeEntries } from '../suites/runtime.ts';
import { type Listening, startProgram } from './program.ts';

const MAIN = resolve(import.meta.dirname, '../../runtimes/nodejs/lib/main.js');
const CODE = resolve(import.meta.dirname, '../fixtures/nodejs');

/**
 * Versions of Node.js that the environment names, in addition to that of the tests. Users of the process
 * sandbox name them the same way.
 */
const OTHERS = ['20', '22', '24'].flatMap(version => {
  const home = process.env[`NODE_HOME_${version}`];
  return home === undefined ? [] : [{ version, node: join(home, 'bin', 'node') }];
});

function entriesOf(module: string): RuntimeEntries {
  return {
    echo: `${module}.echo`,
    fail: `${module}.fail`,
    exit: `${module}.exit`,
    count: `${module}.count`,
    gate: `${module}.gate`,
    sleep: `${module}.sleep`,
    notJson: `${module}.notJson`,
    text: `${module}.text`,
    deep: `${module}.deep`,
    stream: `${module}.stream`,
    log: `${module}.log`,
    flood: `${module}.flood`,
    facts: `${module}.facts`,
    start: `${module}.start`,
    startFails: `${module}.startFails`,
    startSlow: `${module}.startSlow`,
    stop: `${module}.stop`,
    stopFails: `${module}.stopFails`,
    stopSlow: `${module}.stopSlow`,
    unloadable: {
      'nowhere.handler': `module nowhere not found: there is no ${CODE}/nowhere with .js`,
      'main.nothing': `${CODE}/main.cjs has no function nothing`,
      'broken.handler': `${CODE}/broken.mjs:2: SyntaxError`,
      '../main.echo': 'it must have the form module.function',
      handler: 'it must have the form module.function',
    },
  };
}

const ways: [name: string, node: string, listening: Listening, module: string][] = [
  ['Node.js', process.execPath, 'socket', 'main'],
  ['Node.js on TCP', process.execPath, 'tcp', 'main'],
  ['Node.js on an inherited socket', process.execPath, { inheritedAs: 3 }, 'main'],
  ...OTHERS.map(({ version, node }): (typeof ways)[number] => [
    `Node.js ${version}, TypeScript`,
    node,
    { inheritedAs: 3 },
    // Node.js 20 cannot strip types itself. Its compiler takes longer than the suite allows an initializer.
    version === '20' ? 'main' : 'typed',
  ]),
];
for (const [name, node, listening, module] of ways) {
  describeRuntime(name, {
    codePath: CODE,
    entries: entriesOf(module),
    start: () => startProgram([node, MAIN], listening),
  });
}
