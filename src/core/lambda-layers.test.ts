import { describe, expect, test } from 'vitest';
import { codeUrl } from './code-package.ts';
import { readRegister } from './function.ts';
import { lambdaLayerArn, lambdaLayersOf, lambdaLayerVersionArn, readLambdaLayer } from './lambda-layers.ts';

const SHA256 = 'a1'.repeat(32);
const FUNCTION = {
  ...{ name: '0@demo@hello', kind: 'faas', runtime: 'lambda', cpu: 500, memory: 256, handler: 'app.handler' },
  ...{ storageType: 'local', codePath: '/code' },
};

function problemsOf(changes: object): readonly string[] {
  const read = readRegister({ ...FUNCTION, ...changes });
  return read.ok ? [] : read.problems;
}

describe('layers of a registration', () => {
  test('a function with the runtime lambda has code packages as layers, in their order', () => {
    const layers = [codeUrl(SHA256), codeUrl('b2'.repeat(32))];
    expect(problemsOf({ layers })).toEqual([]);
    expect(lambdaLayersOf({ ...FUNCTION, layers })).toEqual([SHA256, 'b2'.repeat(32)]);
  });

  test.each([
    ['a text that names no code package', ['/layer'], ['layers[0] must be code:// and the 64 lower-case']],
    ['a value that is no text', [codeUrl(SHA256), 1], ['layers[1] must be code://']],
    ['more than five items', Array(6).fill(codeUrl(SHA256)), ['layers must have at most 5 items, got 6']],
  ])('the runtime lambda refuses %s as layers', (_title, layers, problems) => {
    expect(problemsOf({ layers })).toEqual(problems.map(text => expect.stringContaining(text)));
  });

  test('an agent with the runtime lambda is refused if it has layers', () => {
    expect(problemsOf({ kind: 'agent', layers: [codeUrl(SHA256)] })).toEqual([
      'layers of runtime lambda need kind faas, got kind agent',
    ]);
    expect(problemsOf({ kind: 'agent', layers: [] })).toEqual([]);
  });

  test('other runtimes store any layers and use none', () => {
    const other = { runtime: 'python3.11', layers: [codeUrl(SHA256), 1] };
    expect(problemsOf(other)).toEqual([]);
    expect(lambdaLayersOf({ ...FUNCTION, ...other })).toEqual([]);
  });
});

describe('ARNs of layers', () => {
  test('the ARN of a layer names its code package', () => {
    expect(lambdaLayerVersionArn(SHA256)).toBe(`${lambdaLayerArn(SHA256)}:1`);
    expect(readLambdaLayer(lambdaLayerVersionArn(SHA256))).toBe(codeUrl(SHA256));
  });

  test.each(['', 'deps', lambdaLayerArn(SHA256), 'arn:aws:lambda:us-east-1:123456789012:layer:deps:1'])(
    'the text "%s" names no layer',
    text => {
      expect(readLambdaLayer(text)).toBe(null);
    },
  );
});
