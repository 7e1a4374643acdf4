// The process of a JavaScript context: reads cells from its channel, runs them, and sends what they give. The
// evaluator of Node's own REPL runs cells with `await`. The last argument is the descriptor of the channel.
'use strict';

const { Socket } = require('node:net');
const { PassThrough } = require('node:stream');
const { inspect } = require('node:util');
const nodeModule = require('node:module');
const repl = require('node:repl');
const vm = require('node:vm');

const IMPORT =
  /^[ \t]*import\s+(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)\s+|\{([^}]*)\}\s*)?from\s*(['"])([^'"\n]+)\4;?/gm;
const IMPORT_ONLY = /^[ \t]*import\s*(['"])([^'"\n]+)\1;?/gm;

const isTypeScript = process.argv.includes('--typescript');
const channel = new Socket({ fd: Number(process.argv.at(-1)) });
const evaluator = repl.start({
  prompt: '',
  input: new PassThrough(),
  output: new PassThrough().resume(),
  terminal: false,
  useGlobal: true,
});
evaluator.removeAllListeners('exit');
process.argv.splice(1);

let count = 0;
/** Ends the running evaluation with an error; null between evaluations. */
let fail = null;

/** Returns a cell as a script, in which imports are dynamic and names can be declared again. */
function scriptOf(code) {
  let script = code;
  if (isTypeScript) {
    if (nodeModule.stripTypeScriptTypes === undefined) throw new Error('TypeScript needs Node.js 22.13 or newer');
    script = nodeModule.stripTypeScriptTypes(script);
  }
  script = script.replace(IMPORT, (_all, name, space, names, _quote, source) => {
    const parts = (names ?? '').split(',').map(part => part.trim().replace(/\s+as\s+/, ': '));
    const bound = [...(name === undefined ? [] : [`default: ${name}`]), ...parts].filter(part => part !== '');
    const all = space === undefined ? '' : `var ${space} = await import(${JSON.stringify(source)});`;
    return bound.length === 0 ? all : `${all}var { ${bound.join(', ')} } = await import(${JSON.stringify(source)});`;
  });
  script = script.replace(IMPORT_ONLY, (_all, _quote, source) => `await import(${JSON.stringify(source)});`);
  // A name that an earlier cell declared may be declared again. A template literal may hold such a line.
  return script.includes('`') ? script : script.replace(/^(const|let)(?=\s)/gm, 'var');
}

/** Returns a compiled script, or null for a cell that only the REPL can run, or that is wrong. */
function compiled(source) {
  const options = {
    filename: `<cell ${count}>`,
    importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  };
  const isObject = /^\s*\{[\s\S]*[^;\s]\s*$/.test(source);
  for (const candidate of [...(isObject ? [`(${source}\n)`] : []), source]) {
    try {
      return new vm.Script(candidate, options);
    } catch {
      // The next candidate may be valid; the REPL reports the error otherwise.
    }
  }
  return null;
}

/** Runs a script. Resolves with an object that has the value of its last expression; an interrupt rejects. */
function evaluate(source) {
  const script = compiled(source);
  return new Promise((resolve, reject) => {
    fail = reject;
    if (script !== null) {
      resolve({ value: script.runInThisContext({ breakOnSigint: true }) });
      return;
    }
    evaluator.eval(`${source}\n`, evaluator.context, `<cell ${count}>`, (error, value) => {
      if (error) reject(error instanceof repl.Recoverable ? error.err : error);
      else resolve({ value });
    });
  }).finally(() => {
    fail = null;
  });
}

function resultOf(value) {
  const shown = inspect(value, { maxArrayLength: 1000, maxStringLength: Infinity });
  return { type: 'result', text: typeof value === 'string' ? value : shown, is_main_result: true, extra: {} };
}

function failureOf(error) {
  if (!(error instanceof Error) && typeof error?.stack !== 'string')
    return { type: 'error', name: 'Error', value: `thrown: ${inspect(error)}`, traceback: inspect(error) };
  const ours = line => /^\s+at (new Promise|.*(node:|kernel\.cjs))/.test(line);
  const trace = String(error.stack)
    .split('\n')
    .filter(line => !ours(line));
  return { type: 'error', name: String(error.name), value: String(error.message), traceback: trace.join('\n') };
}

/** Returns a message as one line of ASCII. */
function lineOf(message) {
  const escaped = char => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return `${JSON.stringify(message).replace(/[\u007f-\uffff]/g, escaped)}\n`;
}

function send(message) {
  channel.write(lineOf(message));
}

/** Sets variables and returns a function that restores them. */
function withVariables(env) {
  const before = Object.keys(env).map(name => [name, process.env[name]]);
  Object.assign(process.env, env);
  return () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
}

async function run({ code, env }) {
  count += 1;
  const restore = withVariables(env);
  try {
    const { value } = await evaluate(scriptOf(code));
    if (value !== undefined) send(resultOf(value));
  } catch (error) {
    send(failureOf(error));
  } finally {
    restore();
  }
  send({ type: 'end' });
}

globalThis.display = (...values) => {
  for (const value of values) send({ ...resultOf(value), is_main_result: false });
};

/** Reports an error outside of an evaluation as output, since no cell waits for it. */
function reportError(error) {
  if (fail === null) console.error(error);
  else fail(error);
}

// The evaluator hands errors that a script throws to its domain instead of its callback.
evaluator._domain?.removeAllListeners('error').on('error', reportError);
process.on('uncaughtException', reportError);
process.on('unhandledRejection', error => console.error(error));
process.on('SIGINT', () => fail?.(Object.assign(new Error('the cell was interrupted'), { name: 'Interrupted' })));

let received = '';
let turn = Promise.resolve();
channel.setEncoding('utf8');
channel.on('data', data => {
  received += data;
  const requests = received.split('\n');
  received = requests.pop();
  for (const request of requests) turn = turn.then(() => run(JSON.parse(request)));
});
channel.on('end', () => process.exit());
channel.on('error', () => process.exit());
