import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { describeWith } from '../probe.ts';
import { boto3, javascript } from './clients.ts';
import { register, writeCode } from './functions.ts';

const KEY = { id: 'any', secret: 'any' };
const PYTHON = `
import os
def handler(event, context):
    return {'event': event, 'version': context.function_version, 'arn': context.invoked_function_arn}
`;

/** A custom runtime in shell. */
const BOOTSTRAP = `#!/bin/sh
exec python3 - <<'END'
import http.client, os
api = http.client.HTTPConnection(os.environ['AWS_LAMBDA_RUNTIME_API'])
while True:
    api.request('GET', '/2018-06-01/runtime/invocation/next')
    answer = api.getresponse()
    body, id = answer.read(), answer.headers['Lambda-Runtime-Aws-Request-Id']
    api.request('POST', '/2018-06-01/runtime/invocation/%s/response' % id, b'{"got":%s}' % body)
    api.getresponse().read()
END
`;

/**
 * Functions of the Python programs below. `invoke` returns the payload and the kind of failure. `zipped`
 * makes a zip of files by name, or of a directory.
 */
const HELPERS = `
import io, os, zipfile
def invoke(name, event={}, **options):
    answer = client.invoke(FunctionName=name, Payload=json.dumps(event), **options)
    return [json.loads(answer['Payload'].read()), answer.get('FunctionError')]
def zipped(files={}, directory=None):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if name == 'bootstrap' else 0o100644) << 16
            archive.writestr(entry, text)
        for root, _, names in os.walk(directory) if directory else []:
            for name in names:
                archive.write(os.path.join(root, name), os.path.relpath(os.path.join(root, name), directory))
    return out.getvalue()
def create(name, files, **options):
    wanted = {'Runtime': 'python3.12', 'Handler': 'app.handler', 'Role': 'arn:aws:iam::1:role/any', 'Timeout': 60, 'MemorySize': 256}
    wanted.update(options)
    return client.create_function(FunctionName=name, Code={'ZipFile': zipped(files)}, **wanted)
HANDLER = '''
import os
def handler(event, context):
    names = ['OWN', 'KEY']
    return {'event': event, 'code': CODE, 'env': {name: os.environ.get(name) for name in names}, 'memory': context.memory_limit_in_mb}
'''
def python(code):
    return {'app.py': 'CODE = %r%s' % (code, HANDLER)}
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
    return await boto3(served.frontendUrl, KEY, HELPERS + source);
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

  test('boto3 creates a function from a zip, calls it, and changes its code and settings', async () => {
    const shown = await run(`
made = create('made', python('one'), Environment={'Variables': {'OWN': 'a'}}, Description='mine', Tags={'team': 'x'})
show([made[name] for name in ['FunctionName', 'Version', 'Runtime', 'Handler', 'MemorySize', 'Timeout', 'Description', 'State']])
import base64, hashlib
zip_one = zipped(python('one'))
show([made['CodeSize'] == len(zip_one), made['CodeSha256'] == base64.b64encode(hashlib.sha256(zip_one).digest()).decode()])
client.get_waiter('function_active_v2').wait(FunctionName='made')
show(invoke('made', {'n': 1}))
described = client.get_function(FunctionName='made')
show([described['Tags'], described['Configuration']['Environment']])
show(failure(create, name='made', files=python('other')))
client.update_function_configuration(FunctionName='made', MemorySize=512, Environment={'Variables': {'OWN': 'b'}}, Role='arn:aws:iam::1:role/x')
client.get_waiter('function_updated_v2').wait(FunctionName='made')
show(invoke('made', {})[0])
published = client.update_function_code(FunctionName='made', ZipFile=zipped(python('two')), Publish=True)
show([published['Version'], invoke('made', {})[0]['code'], invoke('made', {}, Qualifier='1')[0]['code']])
again = client.update_function_code(FunctionName='made', ZipFile=zipped(python('two')), Publish=True)
show(again['Version'])
before = client.get_function_configuration(FunctionName='made')['RevisionId']
client.update_function_code(FunctionName='made', ZipFile=zipped(python('three')), DryRun=True)
show(client.get_function_configuration(FunctionName='made')['RevisionId'] == before)
client.update_function_code(FunctionName='made', ZipFile=zipped(python('three')), RevisionId=before)
show([invoke('made', {})[0]['code'], invoke('made', {}, Qualifier='1')[0]['code']])
show(failure(client.update_function_code, FunctionName='made', ZipFile=zip_one, RevisionId=before))
show(failure(client.update_function_configuration, FunctionName='made', Timeout=5, RevisionId=before))
show(failure(client.update_function_configuration, FunctionName='made:1', Timeout=5))`);
    const stale = error('PreconditionFailedException', 412);
    expect(shown).toEqual([
      ['made', '$LATEST', 'lambda', 'app.handler', 256, 60, 'mine', 'Active'],
      [true, true],
      [{ event: { n: 1 }, code: 'one', env: { OWN: 'a', KEY: null }, memory: '256' }, null],
      [{ team: 'x' }, { Variables: { OWN: 'a' } }],
      error('ResourceConflictException', 409),
      { event: {}, code: 'one', env: { OWN: 'b', KEY: null }, memory: '512' },
      ...[['1', 'two', 'two'], '1', true, ['three', 'two'], stale, stale],
      error('InvalidParameterValueException', 400, 'only $LATEST can be changed'),
    ]);
  }, 120_000);

  test('zips with a bootstrap, with awslambdaric and with a Node.js handler run', async () => {
    const ric = writeCode(join(directory, 'ric'), { 'app.py': PYTHON }, true);
    const shown = await run(`
create('own', {'bootstrap': ${JSON.stringify(BOOTSTRAP)}}, Runtime='provided.al2023', Handler='any')
show(invoke('own', {'n': 1}))
wanted = {'Runtime': 'python3.12', 'Handler': 'app.handler', 'Role': 'any', 'Timeout': 60, 'MemorySize': 256}
client.create_function(FunctionName='ric', Code={'ZipFile': zipped(directory=${JSON.stringify(ric)})}, **wanted, Publish=True)
show(invoke('ric', {'n': 2}, Qualifier='1')[0]['event'])
create('node', {'index.mjs': 'export const handler = async event => ({ event, name: process.env.AWS_LAMBDA_FUNCTION_NAME });'}, Runtime='nodejs22.x', Handler='index.handler')
show(invoke('node', {'n': 3}))`);
    expect(shown).toEqual([[{ got: { n: 1 } }, null], { n: 2 }, [{ event: { n: 3 }, name: 'node' }, null]]);
  }, 120_000);

  test('wrong changes are refused with the exceptions of AWS', async () => {
    const shown = await run(`
# The checks of the client itself are off.
client = boto3.client('lambda', config=botocore.config.Config(read_timeout=120, retries=retries, parameter_validation=False))
create('right', python('one'))
show(failure(client.create_function, FunctionName='a', Runtime='python3.12', Role='r', Handler='app.handler', Code={'ZipFile': b'no zip'}))
show(failure(client.create_function, FunctionName='a', Runtime='python3.12', Role='r', Handler='app.handler', Code={'S3Bucket': 'b', 'S3Key': 'k'}))
show(failure(client.create_function, FunctionName='a', Runtime='python3.12', Role='r', Handler='app.handler', Code={}))
show(failure(create, name='a', files=python('x'), Runtime='java21'))
show(failure(create, name='a', files=python('x'), Handler=''))
show(failure(create, name='a', files=python('x'), MemorySize=0))
show(failure(create, name='a', files=python('x'), Layers=['arn:aws:lambda:us-east-1:1:layer:l:1']))
show(failure(create, name='a', files=python('x'), Environment={'Variables': {'1 A': 'x'}}))
show(failure(create, name='Upper_Case', files=python('x')))
show(failure(client.update_function_code, FunctionName='right', S3Bucket='b', S3Key='k'))
show(failure(client.update_function_code, FunctionName='right', ImageUri='i'))
show(failure(client.update_function_code, FunctionName='absent', ZipFile=zipped(python('x'))))
show(failure(client.update_function_configuration, FunctionName='absent', Timeout=3))
show(failure(client.update_function_configuration, FunctionName='right', Timeout=0))
show(failure(client.put_function_concurrency, FunctionName='right', ReservedConcurrentExecutions=1))
show(sorted(each['FunctionName'] for each in client.list_functions()['Functions'] if each['FunctionName'] in ('a', 'right')))`);
    const invalid = (text: string) => error('InvalidParameterValueException', 400, text);
    expect(shown).toEqual([
      ...[
        invalid('Could not unzip uploaded file'),
        invalid('code in S3 is not supported'),
        invalid('ZipFile is required'),
      ],
      ...[invalid('Runtime must be python3.*'), invalid('Handler is required'), invalid('MemorySize must be between')],
      ...[invalid('Layers[0] names no layer'), invalid('Environment.Variables'), invalid('FunctionName "Upper_Case"')],
      ...[invalid('code in S3 is not supported'), invalid('images are not supported'), UNKNOWN, UNKNOWN],
      ...[invalid('Timeout must be between'), error('UnknownOperationException', 404, 'PUT /lambda/'), ['right']],
    ]);
  }, 120_000);

  test('the JavaScript client creates, updates, publishes and deletes', async () => {
    const zip = await run(`
for code in ['one', 'two']:
    import base64
    show(base64.b64encode(zipped(python(code))).decode())`);
    const shown = await javascript(
      served.frontendUrl,
      KEY,
      `
const [one, two] = ${JSON.stringify(zip)}.map(each => Buffer.from(each, 'base64'));
const call = async (Qualifier) => {
  const { Payload } = await client.send(new sdk.InvokeCommand({ FunctionName: 'js', Qualifier, Payload: '{}' }));
  return JSON.parse(Buffer.from(Payload).toString()).code;
};
const settings = { Runtime: 'python3.12', Handler: 'app.handler', Role: 'arn:aws:iam::1:role/any', Timeout: 60 };
const made = await client.send(new sdk.CreateFunctionCommand({ FunctionName: 'js', Code: { ZipFile: one }, ...settings }));
await sdk.waitUntilFunctionActiveV2({ client, maxWaitTime: 60 }, { FunctionName: 'js' });
show([made.Version, made.MemorySize, await call()]);
show((await client.send(new sdk.PublishVersionCommand({ FunctionName: 'js' }))).Version);
await client.send(new sdk.UpdateFunctionCodeCommand({ FunctionName: 'js', ZipFile: two }));
await sdk.waitUntilFunctionUpdatedV2({ client, maxWaitTime: 60 }, { FunctionName: 'js' });
show([await call(), await call('1')]);
const changed = await client.send(new sdk.UpdateFunctionConfigurationCommand({ FunctionName: 'js', Timeout: 7, Description: 'new' }));
show([changed.Timeout, changed.Description]);
const { Versions } = await client.send(new sdk.ListVersionsByFunctionCommand({ FunctionName: 'js' }));
show(Versions.map(each => each.Version));
await client.send(new sdk.CreateFunctionCommand({ FunctionName: 'js', Code: { ZipFile: one }, ...settings }))
  .catch(error => show([error.name, error.$metadata.httpStatusCode]));
await client.send(new sdk.DeleteFunctionCommand({ FunctionName: 'js' }));
await client.send(new sdk.GetFunctionCommand({ FunctionName: 'js' })).catch(error => show(error.name));`,
    );
    expect(shown).toEqual([
      ...[['$LATEST', 128, 'one'], '1', ['two', 'one'], [7, 'new'], ['$LATEST', '1']],
      ...[['ResourceConflictException', 409], 'ResourceNotFoundException'],
    ]);
  }, 120_000);
});
