'use strict';
/**
 * The client of the Lambda Runtime API for Node.js handlers: `node lambda.cjs`. Runs in a process of the user.
 * Serves handlers that return a promise or call back, and those of `awslambda.streamifyResponse`.
 */
const http = require('node:http');
const path = require('node:path');
const { existsSync } = require('node:fs');
const { PassThrough } = require('node:stream');
const { pathToFileURL } = require('node:url');

const PREFIX = '/2018-06-01/runtime/';
const STREAMS = Symbol.for('aws.lambda.runtime.handler.streaming');
const JSON_TYPE = { 'Content-Type': 'application/json' };
const HTTP_TYPE = 'application/vnd.awslambda.http-integration-response';
const [hostname, port] = process.env.AWS_LAMBDA_RUNTIME_API.split(':');
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });

globalThis.awslambda = {
  streamifyResponse(handler) {
    handler[STREAMS] = 'response';
    return handler;
  },
  HttpResponseStream: {
    from(stream, head) {
      stream.setContentType(HTTP_TYPE);
      stream.write(JSON.stringify(head));
      stream.write(Buffer.alloc(8));
      return stream;
    },
  },
};

/** Sends a request and resolves to its answer's headers and body. `body` may be a stream. */
function send(method, where, body, headers) {
  return new Promise((resolve, reject) => {
    const request = http.request({ hostname, port, agent, method, path: PREFIX + where, headers }, answer => {
      const chunks = [];
      answer.on('data', chunk => chunks.push(chunk));
      answer.on('end', () => resolve({ headers: answer.headers, body: Buffer.concat(chunks) }));
      answer.on('error', reject);
    });
    request.on('error', reject);
    request.end(body);
  });
}

async function load(name) {
  const dot = name.lastIndexOf('.');
  const module = path.join(process.env.LAMBDA_TASK_ROOT, name.slice(0, dot));
  const file = ['.js', '.mjs', '.cjs'].map(end => module + end).find(existsSync);
  if (dot < 0 || file === undefined)
    throw typed('Runtime.ImportModuleError', `Cannot find module '${name.slice(0, dot)}'`);
  const loaded = file.endsWith('.cjs') ? require(file) : await import(pathToFileURL(file).href);
  const handler = loaded[name.slice(dot + 1)] ?? loaded.default?.[name.slice(dot + 1)];
  if (typeof handler !== 'function') throw typed('Runtime.HandlerNotFound', `${name} is undefined or not exported`);
  return handler;
}

function typed(name, message) {
  return Object.assign(new Error(message), { name });
}

function errorOf(error) {
  const isError = error instanceof Error;
  const trace = isError ? String(error.stack).split('\n') : [];
  const errorType = isError ? error.name : typeof error;
  return Buffer.from(JSON.stringify({ errorType, errorMessage: isError ? error.message : String(error), trace }));
}

function contextOf(headers) {
  const { env } = process;
  const deadlineMs = Number(headers['lambda-runtime-deadline-ms']);
  const sent = headers['lambda-runtime-client-context'];
  return {
    callbackWaitsForEmptyEventLoop: true,
    awsRequestId: headers['lambda-runtime-aws-request-id'],
    invokedFunctionArn: headers['lambda-runtime-invoked-function-arn'],
    functionName: env.AWS_LAMBDA_FUNCTION_NAME,
    functionVersion: env.AWS_LAMBDA_FUNCTION_VERSION,
    memoryLimitInMB: env.AWS_LAMBDA_FUNCTION_MEMORY_SIZE,
    logGroupName: env.AWS_LAMBDA_LOG_GROUP_NAME,
    logStreamName: env.AWS_LAMBDA_LOG_STREAM_NAME,
    ...(sent === undefined ? {} : { clientContext: JSON.parse(sent) }),
    getRemainingTimeInMillis: () => Math.max(0, deadlineMs - Date.now()),
  };
}

/** Runs a handler that returns a value or a promise, or takes a callback. */
function resultOf(handler, event, context) {
  return new Promise((resolve, reject) => {
    const done = (error, value) => (error ? reject(error) : resolve(value));
    const legacy = { done, succeed: resolve, fail: reject };
    const returned = handler(event, Object.assign(context, legacy), done);
    if (typeof returned?.then === 'function') returned.then(resolve, reject);
    else if (returned !== undefined && handler.length < 3) resolve(returned);
    // Without a call back, the call ends when nothing is left to do.
    else process.once('beforeExit', () => resolve(null));
  });
}

/** Runs a handler that writes its response. */
async function stream(handler, event, context, where) {
  const out = new PassThrough();
  let type = 'application/octet-stream';
  let request;
  out.setContentType = text => {
    type = text;
  };
  let begin;
  const answered = new Promise((resolve, reject) => {
    begin = () => {
      if (request !== undefined) return;
      request = http.request(
        {
          ...{ hostname, port, agent, method: 'POST', path: `${PREFIX}${where}response` },
          headers: {
            'Content-Type': type,
            'Lambda-Runtime-Function-Response-Mode': 'streaming',
            'Transfer-Encoding': 'chunked',
            Trailer: 'Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body',
          },
        },
        answer => answer.resume().on('end', resolve),
      );
      request.on('error', reject);
      out.on('data', chunk => {
        if (!request.write(chunk)) {
          out.pause();
          request.once('drain', () => out.resume());
        }
      });
      out.on('end', () => request.end());
    };
    out.once('readable', begin);
    out.on('error', reject);
  });
  try {
    await handler(event, out, context);
    if (!out.writableEnded) out.end();
  } catch (error) {
    if (request === undefined && out.readableLength === 0)
      return await send('POST', `${where}error`, errorOf(error), JSON_TYPE);
    // Written bytes may wait for the next turn of the event loop.
    begin();
    request.addTrailers({
      'Lambda-Runtime-Function-Error-Type': error?.name ?? 'Error',
      'Lambda-Runtime-Function-Error-Body': errorOf(error).toString('base64'),
    });
    out.end();
  }
  return await answered;
}

async function main() {
  let handler;
  try {
    handler = await load(process.env._HANDLER);
  } catch (error) {
    console.error(error);
    const known = error?.code === 'ERR_MODULE_NOT_FOUND' || error?.code === 'MODULE_NOT_FOUND';
    const shown = known ? typed('Runtime.ImportModuleError', error.message) : error;
    await send('POST', 'init/error', errorOf(shown), JSON_TYPE);
    process.exit(1);
  }
  for (;;) {
    const { headers, body } = await send('GET', 'invocation/next');
    process.env._X_AMZN_TRACE_ID = headers['lambda-runtime-trace-id'] ?? '';
    const where = `invocation/${headers['lambda-runtime-aws-request-id']}/`;
    const context = contextOf(headers);
    try {
      const event = JSON.parse(body.toString());
      if (handler[STREAMS] === undefined) {
        const value = await resultOf(handler, event, context);
        await send('POST', `${where}response`, Buffer.from(JSON.stringify(value) ?? 'null'), JSON_TYPE);
      } else await stream(handler, event, context, where);
    } catch (error) {
      console.error(error);
      await send('POST', `${where}error`, errorOf(error), JSON_TYPE);
    }
  }
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
