import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { lambdaPackages } from './packages.ts';

/** An access key. */
export interface AccessKey {
  readonly id: string;
  readonly secret: string;
}

/**
 * Runs a Python program with boto3, whose functions `client` and `show` are defined, and returns the values
 * that it passed to `show`. Fails with the program's output if it fails. Clients repeat a call that got no
 * instance in time, as by default: a busy machine may need long for the first start.
 */
export async function boto3(frontendUrl: string, key: AccessKey, source: string): Promise<readonly unknown[]> {
  const program = `${PYTHON_HEAD}\n${source}\n`;
  const python = join(lambdaPackages.homeOf('python'), 'bin/python');
  return await runClient(python, ['-B', '-c', program], environmentOf(frontendUrl, key));
}

const PYTHON_HEAD = `
import json, boto3, botocore.config, botocore.exceptions
retries = {'total_max_attempts': 6, 'mode': 'standard'}
client = boto3.client('lambda', config=botocore.config.Config(read_timeout=120, retries=retries))
def show(value):
    print('\\x1e' + json.dumps(value), flush=True)
def failure(call, **arguments):
    try:
        call(**arguments)
    except botocore.exceptions.ClientError as error:
        return [error.response['Error']['Code'], error.response['ResponseMetadata']['HTTPStatusCode'], error.response['Error']['Message']]
    raise AssertionError('the call did not fail')
`;

/** Runs a module with the JavaScript client in `client`, `sdk` and `show`, as `boto3` does. */
export async function javascript(frontendUrl: string, key: AccessKey, source: string): Promise<readonly unknown[]> {
  const program = `${JAVASCRIPT_HEAD}\n${source}\n`;
  const args = ['--input-type=module', '-e', program, lambdaPackages.homeOf('node')];
  return await runClient(process.execPath, args, environmentOf(frontendUrl, key));
}

const JAVASCRIPT_HEAD = `
import { createRequire } from 'node:module';
const sdk = createRequire(process.argv[1] + '/main.js')('@aws-sdk/client-lambda');
const client = new sdk.LambdaClient({ maxAttempts: 6 });
const show = value => console.log('\\x1e' + JSON.stringify(value));
`;

function environmentOf(frontendUrl: string, { id, secret }: AccessKey): NodeJS.ProcessEnv {
  const { PATH, HOME } = process.env;
  const aws = {
    AWS_ENDPOINT_URL_LAMBDA: `${frontendUrl}/lambda`,
    AWS_REGION: 'us-east-1',
    AWS_DEFAULT_REGION: 'us-east-1',
    AWS_ACCESS_KEY_ID: id,
    AWS_SECRET_ACCESS_KEY: secret,
  };
  return { PATH, HOME, ...aws };
}

async function runClient(program: string, args: readonly string[], env: NodeJS.ProcessEnv) {
  const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const output: Buffer[] = [];
  child.stdout.on('data', chunk => output.push(chunk));
  child.stderr.on('data', chunk => output.push(chunk));
  const [code] = await once(child, 'close');
  const text = Buffer.concat(output).toString();
  if (code !== 0) throw new Error(`the client ended with ${code}:\n${text}`);
  return text
    .split('\n')
    .filter(line => line.startsWith('\x1e'))
    .map(line => JSON.parse(line.slice(1)) as unknown);
}
