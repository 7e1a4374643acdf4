import { describe, expect, test } from 'vitest';
import { lambdaArn, readLambdaName, readQualifier, shortLambdaName } from './lambda-name.ts';

describe('function names of Lambda', () => {
  test.each([
    ['hello', '0@default@hello', null],
    ['demo@hello', '0@demo@hello', null],
    ['0@demo@hello', '0@demo@hello', null],
    ['hello:$LATEST', '0@default@hello', '$latest'],
    ['demo@hello:v1', '0@demo@hello', 'v1'],
    ['function:hello', '0@default@hello', null],
    ['123456789012:function:hello:2', '0@default@hello', '2'],
    ['arn:aws:lambda:eu-west-1:123456789012:function:hello', '0@default@hello', null],
    ['arn:aws-cn:lambda:::function:demo@hello:$LATEST', '0@demo@hello', '$latest'],
  ])('%s names the function %s and the version %s', (sent, name, version) => {
    expect(readLambdaName(sent)).toEqual({ name, version });
  });

  test.each(['', ':', 'a:b:c', '1@demo@hello', 'a@b@c@d', 'hello world', 'hello:-', 'arn:aws:s3:::bucket'])(
    'a request for "%s" names no function',
    sent => expect(readLambdaName(sent)).toBeNull(),
  );

  test('the short name and the ARN of a function name the function again', () => {
    for (const name of ['0@default@hello', '0@demo@hello']) {
      expect(readLambdaName(shortLambdaName(name))?.name).toBe(name);
      expect(readLambdaName(lambdaArn(name))?.name).toBe(name);
    }
  });

  test('a qualifier is $LATEST or a version number', () => {
    expect(['$LATEST', '$latest', 'v1', '-'].map(readQualifier)).toEqual(['$latest', '$latest', 'v1', null]);
  });
});
