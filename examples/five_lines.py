from tickwork import Tickwork

app = Tickwork("sqlite:///jobs.db")
app.schedule("hello", lambda: print("Hello!", flush=True)).every_second()
app.forever()
