import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { describeWith } from '../probe.ts';
import { boto3 } from './clients.ts';
import { register, writeCode } from './functions.ts';

const KEY = { id: 'any', secret: 'any' };
const PYTHON = `
import os
def handler(event, context):
    return {'event': event, 'version': context.function_version, 'arn': context.invoked_function_arn}
`;

/** Defines \`invoke\`, which returns the payload and the kind of failure. */
const INVOKE = `
def invoke(name, event={}, **options):
    answer = client.invoke(FunctionName=name, Payload=json.dumps(event), **options)
    return [json.loads(answer['Payload'].read()), answer.get('FunctionError')]
`;

const error = (type: string, status: number, text = '') => [type, status, expect.stringContaining(text)];
const UNKNOWN = error('ResourceNotFoundException', 404, 'Function not found');

describeWith(['lambda', 'root', 'namespaces'], 'changes of functions by AWS clients', () => {
  let directory: string;
  let served: Served;
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-lambda-'));
    served = await Served.start({ args: [STOP_AGENTS] });
  });
  afterAll(async () => {
    await served?.remove();
    rmSync(directory, { recursive: true, force: true });
  });

  async function run(source: string): Promise<readonly unknown[]> {
    return await boto3(served.frontendUrl, KEY, INVOKE + source);
  }

  test('boto3 publishes, lists, calls and deletes versions', async () => {
    await register(served, 'versions', writeCode(join(directory, 'versions'), { 'app.py': PYTHON }));
    const shown = await run(`
first = client.publish_version(FunctionName='versions', Description='the first')
show([first['Version'], first['Description'], first['FunctionArn'].rpartition('function:')[2]])
show(client.publish_version(FunctionName='versions')['Version'])
show(invoke('versions', {'n': 1}, Qualifier='1')[0]['version'])
show([each['Version'] for each in client.list_versions_by_function(FunctionName='versions')['Versions']])
client.get_waiter('published_version_active').wait(FunctionName='versions', Qualifier='1')
show(failure(client.publish_version, FunctionName='versions', RevisionId='other'))
show(failure(client.publish_version, FunctionName='versions', CodeSha256='other'))
show(failure(client.publish_version, FunctionName='absent'))
show(failure(client.list_versions_by_function, FunctionName='absent'))
show(failure(client.delete_function, FunctionName='versions', Qualifier='$LATEST'))
show(client.delete_function(FunctionName='versions', Qualifier='1')['ResponseMetadata']['HTTPStatusCode'])
show(failure(client.invoke, FunctionName='versions', Qualifier='1'))
show(client.delete_function(FunctionName='versions')['ResponseMetadata']['HTTPStatusCode'])
show(failure(client.get_function, FunctionName='versions'))
show(failure(client.delete_function, FunctionName='versions'))`);
    expect(shown).toEqual([
      ['1', 'the first', 'versions:1'],
      ...['1', '1', ['$LATEST', '1']],
      error('PreconditionFailedException', 412),
      error('InvalidParameterValueException', 400, 'CodeSha256'),
      ...[UNKNOWN, UNKNOWN],
      error('InvalidParameterValueException', 400, 'leave out the qualifier'),
      ...[204, UNKNOWN, 204, UNKNOWN, UNKNOWN],
    ]);
  }, 120_000);
});
