"""What people look at: reports and figures made from results and costs."""
