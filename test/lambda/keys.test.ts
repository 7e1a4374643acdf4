import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { describeWith } from '../probe.ts';
import { type AccessKey, boto3, javascript } from './clients.ts';

const SECRET = 'a secret that is at least 32 bytes long';

describeWith(['lambda'], 'AWS clients of a service with authentication', () => {
  let directory: string;
  let served: Served;
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-lambda-'));
    mkdirSync(join(directory, 'code'));
    const secretFile = join(directory, 'secret');
    writeFileSync(secretFile, SECRET);
    const settings = ['enable_func_token_auth=true', `jwt.secretFile=${secretFile}`, `mounts.allow=${directory}/code`];
    served = await Served.start({ args: [STOP_AGENTS, ...settings.flatMap(setting => ['--set', setting])] });
    await register('acme', 'hello');
  });
  afterAll(async () => {
    await served?.remove();
    rmSync(directory, { recursive: true, force: true });
  });

  async function register(tenant: string, name: string): Promise<void> {
    writeFileSync(join(directory, 'code/app.py'), 'def main(event, context):\n    return {"event": event}\n');
    const answer = await fetch(`${served.metaUrl}/serverless/v1/functions`, {
      method: 'POST',
      headers: { 'X-Auth': await tokenOf(tenant), 'Content-Type': 'application/json' },
      body: JSON.stringify({
        ...{ name: `0@default@${name}`, runtime: 'python3.11', handler: 'app.main', kind: 'faas' },
        ...{ cpu: 500, memory: 256, timeout: 60, storageType: 'local', codePath: join(directory, 'code') },
      }),
    });
    expect(answer.status, await answer.text()).toBe(200);
  }

  /** Returns a key that the command line makes. */
  async function keyOf(tenant: string, role = 'developer'): Promise<AccessKey> {
    const args = ['token', 'create', '--aws', '--tenant', tenant, '--role', role];
    const { code, output } = await run(process.execPath, [join(ROOT, 'dist/main.js'), ...args], {
      capture: true,
      env: {
        ROOKERY_ADDRESS: served.frontendUrl,
        ROOKERY_TOKEN: await tokenOf(tenant),
        ROOKERY_DATA_DIR: served.dataDir,
      },
    });
    const [, id, secret] = /AWS_ACCESS_KEY_ID=(\S+)\n.*AWS_SECRET_ACCESS_KEY=(\S+)\n/.exec(output) ?? [];
    if (code !== 0 || id === undefined || secret === undefined) throw new Error(`it ended with ${code}: ${output}`);
    return { id, secret };
  }

  test('boto3 calls, lists and describes the functions of the tenant of its key', async () => {
    const [value, version, names, configuration] = await boto3(
      served.frontendUrl,
      await keyOf('acme'),
      `
answer = client.invoke(FunctionName='arn:aws:lambda:us-east-1:1:function:hello', Qualifier='$LATEST', Payload=b'{"a": "\\u00e4"}', LogType='Tail')
show(json.loads(answer['Payload'].read()))
show(answer['ExecutedVersion'])
show([each['FunctionName'] for each in client.list_functions(MaxItems=10)['Functions']])
show(client.get_function_configuration(FunctionName='hello')['Handler'])`,
    );
    expect({ value, version, names, configuration }).toEqual({
      ...{ value: { event: { a: 'ä' } }, version: '$LATEST' },
      ...{ names: ['hello'], configuration: 'app.main' },
    });
  }, 120_000);

  test('the JavaScript client calls and lists with its key', async () => {
    const shown = await javascript(
      served.frontendUrl,
      await keyOf('acme', 'user'),
      `
const { Payload } = await client.send(new sdk.InvokeCommand({ FunctionName: 'hello', Payload: JSON.stringify({ b: 1 }) }));
show(JSON.parse(new TextDecoder().decode(Payload)));
show((await client.send(new sdk.ListFunctionsCommand({}))).Functions.map(each => each.FunctionName));
const input = { FunctionName: 'hello', Payload: JSON.stringify({ c: 2 }) };
for await (const { PayloadChunk } of (await client.send(new sdk.InvokeWithResponseStreamCommand(input))).EventStream) {
  if (PayloadChunk) show(JSON.parse(new TextDecoder().decode(PayloadChunk.Payload)));
}`,
    );
    expect(shown).toEqual([{ event: { b: 1 } }, ['hello'], { event: { c: 2 } }]);
  }, 120_000);

  test('a wrong secret, an unknown key and a lesser role are refused in the form of AWS', async () => {
    const key = await keyOf('acme', 'viewer');
    const call = `show(failure(client.invoke, FunctionName='hello', Payload=b'{}'))\n`;
    const stream = `show(failure(client.invoke_with_response_stream, FunctionName='hello', Payload=b'{}'))\n`;
    const list = 'show(failure(client.list_functions))\n';
    const [wrong, wrongList] = await boto3(served.frontendUrl, { ...key, secret: `${key.secret}x` }, call + list);
    expect([wrong, wrongList]).toEqual([
      ['AccessDeniedException', 403, expect.stringContaining('viewer')],
      ['InvalidSignatureException', 403, expect.stringContaining('does not match')],
    ]);
    const unknown = await boto3(served.frontendUrl, { id: 'AKIAIOSFODNN7EXAMPLE', secret: 'x' }, call + list);
    const refused = ['UnrecognizedClientException', 403, expect.stringContaining('not known')];
    expect(unknown).toEqual([refused, refused]);
    const user = await keyOf('acme', 'user');
    const signatures = await boto3(served.frontendUrl, { ...user, secret: `${user.secret}x` }, call + stream);
    const unsigned = ['InvalidSignatureException', 403, expect.stringContaining('does not match')];
    expect(signatures).toEqual([unsigned, unsigned]);
    const [role] = await boto3(served.frontendUrl, key, stream);
    expect(role).toEqual(['AccessDeniedException', 403, expect.stringContaining('viewer')]);
  }, 120_000);

  test('a developer changes functions, a user does not, and a viewer gets masked variables', async () => {
    const zipped = `
import io, zipfile
out = io.BytesIO()
with zipfile.ZipFile(out, 'w') as archive:
    archive.writestr('app.py', 'def main(event, context): return 1')
wanted = {'Runtime': 'python3.12', 'Handler': 'app.main', 'Role': 'any', 'Code': {'ZipFile': out.getvalue()}}
variables = {'Variables': {'OWN': 'private'}}
`;
    const changed = await boto3(
      served.frontendUrl,
      await keyOf('changes'),
      `${zipped}
show(client.create_function(FunctionName='mine', Environment=variables, **wanted)['Environment'])
show(client.publish_version(FunctionName='mine')['Version'])`,
    );
    expect(changed).toEqual([{ Variables: { OWN: 'private' } }, '1']);
    const refused = await boto3(
      served.frontendUrl,
      await keyOf('changes', 'user'),
      `${zipped}
show(failure(client.create_function, FunctionName='other', **wanted))
show(failure(client.update_function_code, FunctionName='mine', ZipFile=out.getvalue()))
show(failure(client.delete_function, FunctionName='mine'))`,
    );
    expect(refused).toEqual(Array(3).fill(['AccessDeniedException', 403, expect.stringContaining('user')]));
    const masked = await boto3(
      served.frontendUrl,
      await keyOf('changes', 'viewer'),
      `show(client.get_function_configuration(FunctionName='mine')['Environment'])
show([each['Environment'] for each in client.list_functions()['Functions']])`,
    );
    expect(masked).toEqual([{ Variables: { OWN: '***' } }, [{ Variables: { OWN: '***' } }]]);
  }, 120_000);

  test('the key of another tenant sees nothing, and a deleted key opens nothing', async () => {
    const key = await keyOf('other');
    const source = `show([each['FunctionName'] for each in client.list_functions()['Functions']])`;
    expect(await boto3(served.frontendUrl, key, source)).toEqual([[]]);
    const headers = { 'X-Auth': await tokenOf('other') };
    const { keys } = (await (await fetch(`${served.frontendUrl}/api/aws/keys`, { headers })).json()) as {
      keys: { id: string }[];
    };
    expect(keys).toHaveLength(1);
    const url = `${served.frontendUrl}/api/aws/keys/${keys[0]?.id}`;
    expect((await fetch(url, { method: 'DELETE', headers })).status).toBe(200);
    const [refused] = await boto3(served.frontendUrl, key, 'show(failure(client.list_functions))');
    expect(refused).toEqual(['UnrecognizedClientException', 403, expect.stringContaining('not known')]);
  }, 120_000);

  test('a token still opens the routes, and no credential opens none', async () => {
    const url = `${served.frontendUrl}/lambda/2015-03-31/functions`;
    const withToken = await fetch(url, { headers: { 'X-Auth': await tokenOf('acme') } });
    expect(withToken.status).toBe(200);
    expect((await fetch(url)).status).toBe(401);
  });
});

async function tokenOf(tenant: string): Promise<string> {
  const jwt = new SignJWT({ role: 'developer' }).setProtectedHeader({ alg: 'HS256' }).setSubject(tenant);
  return await jwt.setExpirationTime('1h').sign(Buffer.from(SECRET));
}
