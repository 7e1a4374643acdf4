"""A function of the Functions Framework, as Google Cloud runs it."""
import functions_framework


@functions_framework.http
def hello(request):
    return {"message": "Hello, %s!" % request.get_json()["name"]}
