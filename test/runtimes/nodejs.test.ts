import { join, resolve } from 'node:path';
import { currentScope } from '../scope.ts';
import { describeRuntime, type RuntimeEntries } from '../suites/runtime.ts';
import { startProgram, withListening } from './program.ts';

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
    spans: `${module}.spans`,
    manySpans: `${module}.manySpans`,
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

const rows = withListening(
  [
    { name: `Node.js ${process.versions.node}`, node: process.execPath, module: 'main' },
    ...OTHERS.map(({ version, node }) =>
      // Node.js 20 cannot strip types itself. Its compiler takes longer than the suite allows an initializer.
      version === '20'
        ? { name: `Node.js ${version}`, node, module: 'main' }
        : { name: `Node.js ${version}, TypeScript`, node, module: 'typed' },
    ),
  ],
  3,
);
/** `npm test` has the version that runs the tests, and the rest the others. */
const SCOPE = currentScope();
for (const [index, [{ name, node, module }, listening, way]] of rows.entries()) {
  if (SCOPE !== 'full' && (index === 0) !== (SCOPE === 'quick')) continue;
  describeRuntime(`${name}, ${way}`, {
    codePath: CODE,
    entries: entriesOf(module),
    start: () => startProgram([node, MAIN], listening),
  });
}
