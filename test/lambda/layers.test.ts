import { afterAll, beforeAll, expect, test } from 'vitest';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { describeWith } from '../probe.ts';
import { boto3 } from './clients.ts';

const KEY = { id: 'any', secret: 'any' };
const TEST_MS = 180_000;

/**
 * Functions of the Python programs below. `publish` makes a layer of files by name and returns its ARN; files
 * in `bin` and a `bootstrap` are executable. `create` makes a function, and `invoke` returns its payload.
 */
const HELPERS = `
import io, zipfile
def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            is_program = name == 'bootstrap' or name.startswith('bin/')
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            archive.writestr(entry, text)
    return out.getvalue()
def publish(files, **options):
    return client.publish_layer_version(LayerName='any', Content={'ZipFile': zipped(files)}, **options)['LayerVersionArn']
def create(name, files, layers, **options):
    wanted = {'Runtime': 'python3.12', 'Handler': 'app.handler', 'Role': 'arn:aws:iam::1:role/any', 'Timeout': 60, 'MemorySize': 256}
    wanted.update(options)
    return client.create_function(FunctionName=name, Code={'ZipFile': zipped(files)}, Layers=layers, **wanted)
def invoke(name, **options):
    answer = client.invoke(FunctionName=name, Payload='{}', **options)
    value = json.loads(answer['Payload'].read())
    return [value.get('errorMessage')] if 'FunctionError' in answer else value
def arns(described):
    return [layer['Arn'] for layer in described.get('Layers', [])]
`;

/** A handler that reports what it sees of its layers. */
const PYTHON = `
import os, subprocess
import price, special
def handler(event, context):
    return {
        'price': price.PRICE, 'special': special.NAME, 'places': [price.__file__, special.__file__],
        'program': subprocess.check_output(['report']).decode(), 'libraries': os.environ['LD_LIBRARY_PATH'],
        'top': sorted(os.listdir('/opt')), 'writable': os.access('/opt/python/price.py', os.W_OK),
    }
`;

/** A custom runtime in shell, for a layer. */
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

const error = (type: string, text: string) => [type, 400, expect.stringContaining(text)];

describeWith(['lambda', 'root', 'namespaces'], 'layers of AWS Lambda', () => {
  let served: Served;
  beforeAll(async () => {
    served = await Served.start({ args: [STOP_AGENTS] });
  });
  afterAll(async () => {
    await served?.remove();
  });

  async function run(source: string): Promise<readonly unknown[]> {
    return await boto3(served.frontendUrl, KEY, HELPERS + source);
  }

  test(
    'a Python function uses packages, programs and libraries of its layers',
    async () => {
      const [version, value] = await run(`
import subprocess
path = {'PATH': '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'}
command = ['/usr/bin/env', 'python3', '-c', 'import sys; print("%d.%d" % sys.version_info[:2])']
version = subprocess.check_output(command, env=path).decode().strip()
first = publish({'python/price.py': 'PRICE = 1', 'bin/report': '#!/bin/sh\\nprintf ok', 'lib/liba.so': ''})
special = 'python/lib/python%s/site-packages/special.py' % version
second = publish({'python/price.py': 'PRICE = 2', special: 'NAME = "of this version"'})
create('layered', {'app.py': ${JSON.stringify(PYTHON)}}, [first, second])
show(version)
show(invoke('layered'))`);
      expect(value).toEqual({
        ...{ price: 2, special: 'of this version', program: 'ok', libraries: '/opt/lib', writable: false },
        places: ['/opt/python/price.py', `/opt/python/lib/python${String(version)}/site-packages/special.py`],
        top: expect.arrayContaining(['bin', 'lib', 'python']),
      });
    },
    TEST_MS,
  );

  test(
    'a Node.js function requires packages of its layers',
    async () => {
      const shown = await run(`
layer = publish({'nodejs/node_modules/price/index.js': 'exports.PRICE = 3;', 'nodejs/node0/node_modules/price/index.js': ''})
code = 'exports.handler = async () => ({ price: require("price").PRICE });'
create('required', {'index.js': code}, [layer], Runtime='nodejs22.x', Handler='index.handler')
show(invoke('required'))`);
      expect(shown).toEqual([{ price: 3 }]);
    },
    TEST_MS,
  );

  test(
    'a layer provides the custom runtime of a function without a bootstrap',
    async () => {
      const shown = await run(`
layer = publish({'bootstrap': ${JSON.stringify(BOOTSTRAP)}})
create('provided', {'data': ''}, [layer], Runtime='provided.al2023', Handler='any')
show(invoke('provided'))`);
      expect(shown).toEqual([{ got: {} }]);
    },
    TEST_MS,
  );

  test(
    'a layer is described by its content, and its ARN is in the configuration of the function',
    async () => {
      const shown = await run(`
import base64, hashlib
content = zipped({'python/price.py': 'PRICE = 4'})
made = client.publish_layer_version(LayerName='deps', Description='prices', CompatibleRuntimes=['python3.12'], Content={'ZipFile': content})
digest = hashlib.sha256(content)
show([made['Content'] == {'CodeSha256': base64.b64encode(digest.digest()).decode(), 'CodeSize': len(content)}, made['Version']])
show([made['Description'], made['CompatibleRuntimes'], made['LayerVersionArn'] == '%s:1' % made['LayerArn'], digest.hexdigest() in made['LayerArn']])
layer = made['LayerVersionArn']
created = create('described', {'app.py': 'def handler(event, context): return {}'}, [layer])
show([arns(created) == [layer], arns(client.get_function_configuration(FunctionName='described')) == [layer]])
listed = [fn for fn in client.list_functions()['Functions'] if fn['FunctionName'] == 'described']
show([arns(fn) == [layer] for fn in listed])`);
      expect(shown).toEqual([[true, 1], ['prices', ['python3.12'], true, true], [true, true], [true]]);
    },
    TEST_MS,
  );

  test(
    'an update replaces the layers, an empty list removes them, and a published version keeps its own',
    async () => {
      const shown = await run(`
code = '''
def handler(event, context):
    import price
    return {'price': price.PRICE}
'''
one, two = [publish({'python/price.py': 'PRICE = %r' % text}) for text in ['one', 'two']]
create('updated', {'app.py': code}, [one], Publish=True)
show(invoke('updated'))
show(arns(client.update_function_configuration(FunctionName='updated', Layers=[two])) == [two])
show([invoke('updated'), invoke('updated', Qualifier='1')])
client.update_function_configuration(FunctionName='updated', Timeout=50)
show(invoke('updated'))
show(arns(client.update_function_configuration(FunctionName='updated', Layers=[])))
show(invoke('updated'))`);
      expect(shown).toEqual([
        { price: 'one' },
        true,
        [{ price: 'two' }, { price: 'one' }],
        { price: 'two' },
        [],
        ["No module named 'price'"],
      ]);
    },
    TEST_MS,
  );

  test(
    'layers that this service does not have are refused',
    async () => {
      const shown = await run(`
code = {'app.py': 'def handler(event, context): return {}'}
foreign = 'arn:aws:lambda:us-east-1:123456789012:layer:deps:1'
absent = 'arn:aws:lambda:us-east-1:123456789012:layer:%s:1' % ('a1' * 32)
layer = publish({'python/price.py': ''})
show(failure(create, name='refused', files=code, layers=[foreign]))
show(failure(create, name='refused', files=code, layers=[absent]))
show(failure(create, name='refused', files=code, layers=[layer] * 6))
show(failure(client.publish_layer_version, LayerName='deps', Content={'ZipFile': b'no zip'}))
show(failure(client.publish_layer_version, LayerName='deps', Content={'S3Bucket': 'bucket', 'S3Key': 'k'}))
show(failure(client.list_layers)[0])
show([fn for fn in client.list_functions()['Functions'] if fn['FunctionName'] == 'refused'])`);
      const invalid = (text: string) => error('InvalidParameterValueException', text);
      expect(shown).toEqual([
        ...[invalid('Layers[0] names no layer of this service'), invalid('layers: the code package does not exist')],
        ...[invalid('layers must have at most 5 items'), invalid('Could not unzip uploaded file')],
        ...[invalid('code in S3 is not supported'), 'UnknownOperationException', []],
      ]);
    },
    TEST_MS,
  );

  test(
    'the package of a layer is kept while a function has the layer',
    async () => {
      const [arn] = await run(`
layer = publish({'python/price.py': 'PRICE = "kept"'})
create('kept', {'app.py': 'def handler(event, context): return {}'}, [layer])
show(layer)`);
      const sha256 = /[0-9a-f]{64}/.exec(String(arn))?.[0];
      const remove = () => fetch(`${served.frontendUrl}/api/code/${sha256}`, { method: 'DELETE' });
      const refused = await remove();
      expect([refused.status, await refused.text()]).toEqual([
        409,
        expect.stringContaining('function 0@default@kept:$latest refers to it'),
      ]);
      await run(`client.delete_function(FunctionName='kept')`);
      expect((await remove()).status).toBe(200);
    },
    TEST_MS,
  );
});
